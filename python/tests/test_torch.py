"""memsaver.torch with a stand-in for PyTorch that allocates memory like PyTorch's caching allocator. Testing PyTorch
itself requires a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import memsaver
import memsaver.torch
from memsaver import Saver, _abi

SEGMENT = 2 << 20
GPU = memsaver.gpu_available()  # now, because a driver stub of another test has the same name


class Pool:
    """torch.cuda.MemPool: caches segments that no tensor uses, and frees them when it is destroyed."""

    def __init__(self, allocator: Any) -> None:
        self.allocate, self.free = allocator
        self.idle: list[int] = []

    def take(self) -> int:
        segment = self.idle.pop() if self.idle else self.allocate(SEGMENT, 0, None)
        if segment is None:
            raise MemoryError("torch.OutOfMemoryError")
        return int(segment)

    def __del__(self) -> None:
        for segment in self.idle:
            self.free(segment, SEGMENT, 0, None)


class Tensor:
    """The only tensor of a segment."""

    def __init__(self, pool: Pool | None) -> None:
        self.pool, self.own = pool, ctypes.create_string_buffer(16)
        self.pointer = pool.take() if pool else ctypes.addressof(self.own)

    def data_ptr(self) -> int:
        return self.pointer

    def __del__(self) -> None:
        if self.pool and hasattr(self, "pointer"):
            self.pool.idle.append(self.pointer)


class PyTorch(types.ModuleType):
    """The part of PyTorch that memsaver.torch uses, where torch, torch.cuda and torch.cuda.memory are one."""

    uint8 = "uint8"

    def __init__(self) -> None:
        super().__init__("torch")
        self.__version__ = "2.8.0+cu128"
        self.takes_pools = True
        self.open: list[tuple[int, Pool]] = []
        self.emptied = self.made = 0
        self.cuda = self.memory = self
        self.device = contextlib.nullcontext

    @staticmethod
    def CUDAPluggableAllocator(path: str, allocate: str, free: str) -> Any:
        library = ctypes.CDLL(path)
        _abi.declare(library)
        functions = getattr(library, allocate), getattr(library, free)
        return types.SimpleNamespace(allocator=lambda: functions)

    def MemPool(self, allocator: Any) -> Pool:
        self.made += 1
        return Pool(allocator)

    @contextlib.contextmanager
    def use_mem_pool(self, pool: Pool, device: int) -> Iterator[None]:
        assert all(pool is not other for _, other in self.open), "already recording to mempool_id"
        entry = (threading.get_ident(), pool)
        self.open.append(entry)
        yield
        self.open.remove(entry)

    def empty_cache(self) -> None:
        self.emptied += 1

    def empty(self, *shape: int, dtype: object = None, device: str = "cuda") -> Tensor:
        mine = [pool for thread, pool in self.open if thread == threading.get_ident()]
        return Tensor(mine[0] if mine and self.takes_pools else None)  # the first is the outermost


@pytest.fixture
def saver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Saver]:
    """Uses a GPU if there is one, else its stand-in."""
    if GPU:
        made = Saver(0)
    else:
        made = Saver("host", host_capacity=256 << 20, host_granularity=1 << 16)
        monkeypatch.setattr(memsaver.torch, "_check", lambda saver: None)
    with made:
        yield made


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> PyTorch:
    made = PyTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(memsaver.torch, "_allocator", None)
    return made


def segments(saver: Saver, tag: str) -> int:
    return saver.totals(tag).used_bytes // SEGMENT


def test_tensors_of_a_region(saver: Saver, torch: PyTorch) -> None:
    with memsaver.torch.region(saver, "weights"):
        tensors = [torch.empty(10) for _ in range(3)]
    outside = torch.empty(10)
    assert all(saver.owns(tensor.data_ptr()) for tensor in tensors)
    assert not saver.owns(outside.data_ptr())
    assert segments(saver, "weights") == 3
    saver.pause("weights")
    saver.resume("weights")
    for _ in range(2):
        with memsaver.torch.region(saver, "weights"):
            memsaver.torch.release(saver)  # not of open regions
            tensors.append(torch.empty(10))
    assert torch.made == 1  # the tag's pool is used again


def test_freeing_and_releasing(saver: Saver, torch: PyTorch) -> None:
    with memsaver.torch.region(saver, "a"):
        tensors = [torch.empty(10) for _ in range(3)]
    with memsaver.torch.region(saver, "b"):
        other = torch.empty(10)
    del tensors
    assert segments(saver, "a") == 3  # cached by PyTorch
    memsaver.torch.release(saver, "a")
    gc.collect()
    assert segments(saver, "a") == 0
    for _ in range(2):
        memsaver.torch.release(saver)
        assert torch.emptied == 2
    assert segments(saver, "b") == 1
    saver.pause("b")
    del other
    memsaver.torch.release(saver)
    gc.collect()
    assert segments(saver, "b") == 0


def test_inner_regions_override_outer_ones(saver: Saver, torch: PyTorch) -> None:
    made = []
    with memsaver.torch.region(saver, "outer"):
        made.append(torch.empty(1))
        with memsaver.torch.region(saver, "inner"):
            made += [torch.empty(1), torch.empty(1)]
            with memsaver.torch.region(saver, "outer"):
                made += [torch.empty(1) for _ in range(3)]
        made.append(torch.empty(1))
    assert segments(saver, "inner") == 2
    assert segments(saver, "outer") == 5
    assert torch.open == []


def test_two_threads_in_regions_of_one_tag(saver: Saver, torch: PyTorch) -> None:
    both = threading.Barrier(2, timeout=30)

    def work() -> list[Tensor]:
        with memsaver.torch.region(saver, "a"):
            both.wait()
            made = [torch.empty(1) for _ in range(5)]
            both.wait()
            return made

    with ThreadPoolExecutor() as threads:
        made = [threads.submit(work) for _ in range(2)]
        assert sum(len(each.result()) for each in made) == segments(saver, "a") == 10
    assert torch.made == 2


@pytest.mark.parametrize(
    ("tags", "gone"), [(None, 2), (["a/1"], 1), (memsaver.Under("a/"), 1), (memsaver.Under("c"), 0), ("*", 2)]
)
def test_segments_go_before_their_tag(saver: Saver, torch: PyTorch, tags: Any, gone: int) -> None:
    for tag in ("a/1", "b"):
        with memsaver.torch.region(saver, tag):
            torch.empty(1)
    if tags == "*":
        saver.close()
    else:
        saver.drop(tags)
        left = [row.tag for row in saver.usage() if row.used_bytes]
        assert left == ["a/1", "b"][gone:]
        with memsaver.torch.region(saver, "a/1"):  # made anew
            assert saver.owns(torch.empty(1).data_ptr())
    assert torch.emptied == (gone > 0)


def test_no_room(saver: Saver, torch: PyTorch) -> None:
    """The exception ends the region."""
    saver.arena("a", capacity=8 << 20)
    with pytest.raises(MemoryError, match="OutOfMemoryError"), memsaver.torch.region(saver, "a"):
        _ = [torch.empty(1) for _ in range(10)]
    assert torch.open == []
    assert not saver.owns(torch.empty(1).data_ptr())


def test_tensors_may_outlive_the_saver(torch: PyTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = Saver("host", host_capacity=64 << 20)
    with pytest.raises(memsaver.Misuse, match="a saver on a GPU"), memsaver.torch.region(saver, "a"):
        pass
    monkeypatch.setattr(memsaver.torch, "_check", lambda saver: None)
    with memsaver.torch.region(saver, "a"):
        tensor = torch.empty(1)
    saver.close()
    del saver
    gc.collect()
    del tensor
    gc.collect()


@pytest.mark.parametrize(
    ("name", "value", "text"), [("takes_pools", False, "expandable_segments"), ("__version__", "2.7.1", r"2\.8 or later")]
)
def test_what_pytorch_lacks(saver: Saver, torch: PyTorch, name: str, value: object, text: str) -> None:
    setattr(torch, name, value)
    with pytest.raises(memsaver.Unavailable, match=text), memsaver.torch.region(saver, "a"):
        pass
    assert torch.open == []


def test_no_pytorch(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(sys)["modules"], "torch", None)  # importing it fails
    with pytest.raises(memsaver.Unavailable, match="cannot be imported"), memsaver.torch.region(saver, "a"):
        pass
