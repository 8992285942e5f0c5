"""PyTorch tensors in a saver's memory: docs/python.md.

    with memsaver.torch.region(saver, "weights"):
        model = Model().cuda()  # its tensors belong to the tag "weights"
    saver.pause("weights")

A tensor is paused with its tag, and keeps its address. Do not use it while it is paused, and destroy it before its tag is
dropped or the saver closed, when it becomes a dangling pointer. Do not call `torch.cuda.empty_cache()` on another thread
while `on_event` or a hook runs: that thread may hold the GIL and wait for the library's lock.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from memsaver._callbacks import call
from memsaver._library import library_path
from memsaver._saver import Saver
from memsaver._share import Attached
from memsaver.errors import Misuse, Unavailable

__all__ = ["region", "release", "tensors"]


class _Open(threading.local):
    """This thread's regions: a function for each that enters its pool again, and the stack that leaves it. PyTorch uses
    the outermost pool first, so the regions around the innermost one are left while that one is open.
    """

    def __init__(self) -> None:
        self.regions: list[tuple[Callable[[], Any], contextlib.ExitStack]] = []


_lock = threading.Lock()  # guards the pools
# Of each saver, the pools of each tag and device that are in no region: one serves one at a time, as PyTorch requires.
_pools: weakref.WeakKeyDictionary[Saver, dict[tuple[str, int], list[Any]]] = weakref.WeakKeyDictionary()
_allocator: Any = None  # lives as long as the process, because pools hold its address
_open = _Open()


def _torch() -> Any:
    try:
        import torch
    except ImportError as why:
        raise Unavailable(f"PyTorch cannot be imported: {why}") from why
    return torch


def _the_allocator() -> Any:
    """Returns PyTorch's wrapper of libmemsaver's two functions."""
    global _allocator
    with _lock:
        if _allocator is None:
            torch = _torch()
            if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 8):
                raise Unavailable(f"PyTorch 2.8 or later is required (pools per thread); this is {torch.__version__}")
            names = "memsaver_torch_allocate", "memsaver_torch_free"
            _allocator = torch.cuda.memory.CUDAPluggableAllocator(library_path(), *names)
        return _allocator.allocator()


def _check(saver: Saver) -> None:
    if not saver._on_gpu:
        raise Misuse("tensors on a GPU need a saver on a GPU: memsaver.Saver(0)")


def _idle_of(saver: Saver, tag: str, device: int) -> list[Any]:
    with _lock:
        if saver not in _pools:
            _pools[saver] = {}
            saver._leavers.append(_leave)
        return _pools[saver].setdefault((tag, device), [])


@contextlib.contextmanager
def region(saver: Saver, tag: str, *, device: int | None = None) -> Iterator[None]:
    """Inside the region, PyTorch's allocations on this thread use memory of the tag, which is made if it does not exist, on
    a device: the GPU's number; None: the saver's. Inner regions override outer ones. Backward passes, which have threads of
    their own, and `torch.cuda.graph` captures do not use it.

    Raises `Unavailable` without PyTorch 2.8, and if PyTorch does not allocate from the region, for example because of
    `torch.cuda.use_mem_pool`; `Misuse` for a saver on host memory. If memory is exhausted, PyTorch raises
    `torch.OutOfMemoryError`.
    """
    torch = _torch()
    _check(saver)
    allocator = _the_allocator()
    number = saver.info().device if device is None else device
    arena = saver.arena(tag, device=number)
    idle = _idle_of(saver, tag, number)
    with _lock:
        pool = idle.pop() if idle else None
    if pool is None:
        with torch.cuda.device(number):  # a pool belongs to the device that is current when it is made
            pool = torch.cuda.MemPool(allocator)
    within = contextlib.ExitStack()

    def enter() -> None:
        within.enter_context(torch.cuda.use_mem_pool(pool, device=number))

    def give_back() -> None:
        with _lock:
            idle.append(pool)

    with contextlib.ExitStack() as end:
        end.callback(give_back)
        if _open.regions:
            again, around = _open.regions[-1]
            around.close()
            end.callback(again)
        call("torch_push", arena._handle)
        end.callback(call, "torch_pop")
        end.callback(within.close)
        enter()
        _open.regions.append((enter, within))
        end.callback(_open.regions.pop)
        _try(torch, saver, tag, number)
        yield


def _try(torch: Any, saver: Saver, tag: str, device: int) -> None:
    """Checks that PyTorch uses the region, because some of its settings make it ignore a pool silently."""
    if not saver.owns(torch.empty(1, dtype=torch.uint8, device=f"cuda:{device}").data_ptr()):
        raise Unavailable(
            f'PyTorch does not allocate from the region of tag "{tag}". Is this inside torch.cuda.use_mem_pool, or '
            "does PYTORCH_CUDA_ALLOC_CONF enable expandable_segments (https://github.com/pytorch/pytorch/issues/147851)?"
        )


def release(saver: Saver, tag: str | None = None) -> None:
    """Releases the segments that PyTorch caches for a tag (None: for all) and that no tensor uses; those of live tensors by
    the next `torch.cuda.empty_cache()` after their end. Open regions keep theirs.
    """
    _release(saver, lambda name: tag is None or name == tag)


def tensors(attached: Attached, like: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ranges of an attached publication as tensors, with the names, shapes and types of `like`, such as the
    `state_dict()` of a model on the device "meta". They are the published memory itself; only copied ranges may be
    written. Raises `Misuse` for a name that was not published, and for one with another size.
    """
    torch = _torch()
    _check(attached.saver)
    made, device = {}, f"cuda:{attached.saver.info().device}"
    for name, wanted in like.items():
        view = attached.view(name)
        if view.bytes != wanted.numel() * wanted.element_size():
            asked = f"{wanted.dtype} of {tuple(wanted.shape)}"
            raise Misuse(f'"{name}" in "{attached.tag}" has {view.bytes} bytes, unlike {asked}')
        made[name] = torch.as_tensor(view, device=device).view(wanted.dtype).view(wanted.shape)
    return made


def _release(saver: Saver, chosen: Callable[[str], bool]) -> None:
    gone: list[Any] = []
    with _lock:
        for (name, _), idle in _pools.get(saver, {}).items():
            if chosen(name):
                gone += idle
                idle.clear()
    if gone:
        gone.clear()  # without the lock, because it calls back
        _torch().cuda.empty_cache()


def _leave(saver: Saver, ends: Callable[[str], bool]) -> None:
    """Releases what is cached for tags that end. One that is made anew gets new pools."""
    _release(saver, ends)
    with _lock:
        tags = _pools[saver]
        for key in [key for key in tags if ends(key[0])]:
            del tags[key]
