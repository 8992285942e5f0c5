"""PyTorch's tensors in a saver's memory.

    with memsaver.torch.region(saver, "weights"):
        model = Model().cuda()  # its tensors are of the tag "weights"
    saver.pause("weights")

Needs PyTorch 2.8 or later, and a saver on the GPU. What PyTorch allocates on this thread inside a region comes from a
`torch.cuda.MemPool` of the tag; nothing else does. PyTorch takes memory in segments and keeps those that no tensor uses:
`release()` gives them back. What the thread of a backward pass allocates is not the region's.

A tensor is paused with its tag, and keeps its address. Let tensors go before their tag is dropped or the saver closed: they
are dangling pointers then. Do not use it while it is paused, nor free all of a device's cached
memory (`torch.cuda.empty_cache()`) on another thread while `on_event` or a hook runs: it may hold Python's lock and wait for
the library's.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from ctypes import byref, c_void_p
from typing import Any

from memsaver._callbacks import Handle, call
from memsaver._library import library, library_path
from memsaver._saver import Saver
from memsaver.errors import Misuse, OutOfMemory, Unavailable

__all__ = ["region", "release"]


class _Pools:
    """Of one tag of one saver on one device. A pool serves one region at a time, for PyTorch asks that of it. Does not keep
    the saver."""

    def __init__(self, arena: Handle) -> None:
        self.arena = arena
        self.idle: list[Any] = []


class _Region:
    """A region that is open on this thread. PyTorch asks the outermost pool first: those around the innermost are left
    for as long as that is open."""

    def __init__(self, pool: Any, device: int) -> None:
        self.pool = pool
        self.device = device
        self.within: Any = None

    def enter(self) -> None:
        self.within = _torch().cuda.use_mem_pool(self.pool, device=self.device)
        self.within.__enter__()

    def leave(self) -> None:
        within, self.within = self.within, None
        if within is not None:
            within.__exit__(None, None, None)


class _Open(threading.local):
    def __init__(self) -> None:
        self.regions: list[_Region] = []


_lock = threading.Lock()  # guards the pools
_pools: weakref.WeakKeyDictionary[Saver, dict[tuple[str, int], _Pools]] = weakref.WeakKeyDictionary()
_allocator: Any = None  # as long as the process: pools hold its address
_open = _Open()


def _torch() -> Any:
    try:
        import torch
    except ImportError as why:
        raise Unavailable(f"PyTorch cannot be imported: {why}") from why
    return torch


def _the_allocator() -> Any:
    """PyTorch's wrapper of libmemsaver's two functions."""
    global _allocator
    with _lock:
        if _allocator is None:
            torch = _torch()
            if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 8):
                raise Unavailable(
                    f"PyTorch 2.8 or later is needed, whose pools serve one thread; this is {torch.__version__}"
                )
            if not hasattr(library(), "memsaver_torch_allocate"):
                raise Unavailable(f"{library_path()} has no functions for PyTorch: build it anew")
            names = "memsaver_torch_allocate", "memsaver_torch_free"
            _allocator = torch.cuda.memory.CUDAPluggableAllocator(library_path(), *names)
        return _allocator.allocator()


def _check(saver: Saver) -> None:
    if not saver._on_gpu:
        raise Misuse("tensors on a GPU need a saver on a GPU: memsaver.Saver(0)")


def _pools_of(saver: Saver, tag: str, device: int) -> _Pools:
    """Of a tag that is made if there is none. One that was dropped, and made anew, gets new ones."""
    arena = saver.arena(tag, device=device)
    with _lock:
        if (tags := _pools.get(saver)) is None:
            tags = _pools[saver] = {}
            saver._leavers.append(_release)
        found = tags.get((tag, device))
    if found is None or _ended(found.arena):  # not while the lock is held: it may call back
        found = _Pools(arena._handle)
        with _lock:
            tags[tag, device] = found
    return found


def _ended(arena: Handle) -> bool:
    """Only allocating tells."""
    pointer = c_void_p()
    with contextlib.suppress(OutOfMemory):
        try:
            call(library().memsaver_arena_allocate, arena, 1, 0, byref(pointer))
        except Misuse:
            return True
        call(library().memsaver_arena_deallocate_idle, arena, pointer)
    return False


@contextlib.contextmanager
def region(saver: Saver, tag: str, *, device: int | None = None) -> Iterator[None]:
    """What PyTorch allocates for this thread inside is memory of the tag, which is made if there is none.

    Regions of other threads, of the same tag too, and regions inside this one are well: an inner one overrides an outer
    one. Memory for `torch.cuda.graph` captures comes from the graph's own pool.

    device: the GPU's number; None: the saver's. The region does not change PyTorch's current device.

    Raises `Unavailable` without PyTorch 2.8, where the library has no functions for it, and where PyTorch does not take
    its memory from the region, as when `torch.cuda.use_mem_pool` or versions with expandable segments stand in the way;
    `Misuse` for a saver on host memory. Where there is no room, PyTorch raises `torch.OutOfMemoryError`.
    """
    torch = _torch()
    _check(saver)
    allocator = _the_allocator()
    number = saver.info().device if device is None else device
    pools = _pools_of(saver, tag, number)
    with _lock:
        pool = pools.idle.pop() if pools.idle else None
    if pool is None:
        with torch.cuda.device(number):  # a pool is of the device that is current when it is made
            pool = torch.cuda.MemPool(allocator)
    around = _open.regions[-1] if _open.regions else None
    mine = _Region(pool, number)
    if around is not None:
        around.leave()
    try:
        call(library().memsaver_torch_push, pools.arena)
        try:
            mine.enter()
            _open.regions.append(mine)
            try:
                _try(torch, saver, tag, number)
                yield
            finally:
                _open.regions.pop()
                mine.leave()
        finally:
            call(library().memsaver_torch_pop)
    finally:
        if around is not None:
            around.enter()
        with _lock:
            pools.idle.append(pool)


def _try(torch: Any, saver: Saver, tag: str, device: int) -> None:
    """PyTorch has settings that make it pass a pool by without a word."""
    tensor = torch.empty(1, dtype=torch.uint8, device=f"cuda:{device}")
    if not saver.owns(tensor.data_ptr()):
        raise Unavailable(
            f'PyTorch does not take its memory from the region of tag "{tag}". Is this inside torch.cuda.use_mem_pool, or '
            "does PYTORCH_CUDA_ALLOC_CONF ask for expandable_segments (https://github.com/pytorch/pytorch/issues/147851)?"
        )


def release(saver: Saver, tag: str | None = None) -> None:
    """Gives back the segments that PyTorch keeps for a tag (None: for all) and that no tensor uses.

    Tensors that live are well, and are counted with the tag until they end; their segments go with the next
    `torch.cuda.empty_cache()` after that. Regions that are open keep theirs.
    """
    _release(saver, lambda name: tag is None or name == tag)


def _release(saver: Saver, chosen: Callable[[str], bool]) -> None:
    gone: list[Any] = []
    with _lock:
        for (name, _), pools in _pools.get(saver, {}).items():
            if chosen(name):
                gone += pools.idle
                pools.idle = []
    if gone:
        gone.clear()  # not while the lock is held: it calls back
        _torch().cuda.empty_cache()
