"""Memory of a saver as arrays for NumPy, CuPy, PyTorch and others. Independent of the functions that free it."""

from __future__ import annotations

import ctypes
import math
import operator
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex, TypeAlias

from memsaver import _abi, _callbacks
from memsaver._callbacks import Scope
from memsaver._library import library
from memsaver.errors import Error, Misuse

#: An array-interface type ("<f4"), or anything that numpy.dtype() accepts: numpy.float32, "float32", ...
DType: TypeAlias = Any
#: One extent, or one for each dimension: of int, numpy.int64, ...
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]

_nothing = ctypes.c_ubyte()
_TYPE = re.compile(r"[<>|=][biufcV?]([1-9]\d*)")


def _type_of(dtype: DType) -> tuple[str, int]:
    """Returns the array-interface name of a type and its size in bytes. Uses NumPy only if necessary."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "str", None)
    if not isinstance(name, str) or not _TYPE.fullmatch(name):
        import numpy

        name = numpy.dtype(dtype).str
    found = _TYPE.fullmatch(name)
    if found is None:
        raise Misuse(f"unsupported element type {name!r}")
    return name, int(found[1])


class View:
    """An array in a saver's memory. Does not own the memory and must not be used after its block was freed.

    On host memory it has `__array_interface__` (`numpy.asarray(view)`), on a GPU `__cuda_array_interface__`
    (`cupy.asarray(view)`, `torch.as_tensor(view, device="cuda")`). While any of the memory is paused, these are
    `Misuse`. Touching paused memory through an array that was made before is a segmentation fault on the host, and an
    illegal address on a GPU.
    """

    def __init__(
        self,
        pointer: int,
        shape: Shape,
        dtype: DType,
        on_gpu: bool,
        paused: Callable[[int, int], bool] | None = None,
        writable: bool = True,
    ) -> None:
        """`paused(pointer, bytes)`: whether any of these bytes are paused."""
        self.typestr, size = _type_of(dtype)
        self.shape: tuple[int, ...] = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
        if any(extent < 0 for extent in self.shape):
            raise Misuse(f"invalid array shape {self.shape}")
        self.pointer = pointer  #: the address
        self.bytes = math.prod(self.shape) * size
        self.on_gpu = on_gpu
        self.writable = writable  #: False: writing it is an access violation; arrays on the host are then read-only
        self._paused = paused
        if not pointer and self.bytes:
            raise Misuse(f"a null pointer cannot hold an array of {self.bytes} bytes")

    def _interface(self, attribute: str, there: bool) -> dict[str, Any]:
        if not there:
            where = "a GPU" if self.on_gpu else "the host"
            raise AttributeError(f"{attribute}: this memory is on {where}")
        address = self._active() or ctypes.addressof(_nothing)  # older NumPy versions do not accept a null address
        read_only = not self.writable and not self.on_gpu  # PyTorch takes no memory on a GPU that is read-only
        return {"shape": self.shape, "typestr": self.typestr, "data": (address, read_only), "version": 3}

    def _address(self) -> int:
        return self.pointer

    def _active(self) -> int:
        address = self._address()
        if self.bytes and self._paused is not None and self._paused(address, self.bytes):
            raise Misuse("this memory is paused; resume its tag first")
        return address

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._interface("__array_interface__", not self.on_gpu)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._interface("__cuda_array_interface__", self.on_gpu), "stream": None}

    def memory(self) -> memoryview:
        """Returns host memory as a memoryview, without NumPy. `Misuse` on a GPU."""
        if self.on_gpu:
            raise Misuse("the host cannot access memory on a GPU")
        array = (ctypes.c_ubyte * self.bytes).from_address(self._active()) if self.bytes else (ctypes.c_ubyte * 0)()
        array.owner = self  # type: ignore[attr-defined] # keeps the view alive with the array
        memory = memoryview(array).cast("B")
        return memory if self.writable else memory.toreadonly()

    def __repr__(self) -> str:
        return f"<memsaver.{type(self).__name__} {self.shape} {self.typestr} at {self.pointer:#x}>"


class Buffer(View, Scope):
    """An array that owns its block, until `free()`, the end of a `with` block, or the last array made from it."""

    _at_end = "free"

    def __init__(self, like: View, pointer: int, owner: Any) -> None:
        """`owner`: a saver or an arena."""
        super().__init__(pointer, like.shape, like.typestr, like.on_gpu, like._paused)
        self._owner = owner
        self._last = getattr(library(), f"memsaver_{owner._of}deallocate"), owner._handle, pointer
        self._own()

    def _own(self) -> None:
        # If the saver was closed or the tag dropped, there is nothing to free, and the error of `last` is ignored.
        self._finalizer = weakref.finalize(self, _callbacks.when_possible, *self._last)
        self._finalizer.atexit = False  # the process's end releases everything; other threads may still be working

    def _address(self) -> int:
        if not self._finalizer.alive:
            raise Misuse("the buffer has been freed")
        if self.bytes and not self._owner._owns(self.pointer):
            raise Misuse("the buffer has no memory any more: its tag was dropped, its saver closed, or its block freed")
        return self.pointer

    def free(self, *, stream: Any = None, idle: bool = False) -> None:
        """Frees the block like `Saver.free()`; arrays made from it must not be used any more. Idempotent.

        If it raises, the buffer still owns its block, unless the library says by `Misuse` that there is no such block.
        """
        if self._finalizer.detach() is None:
            return
        try:
            self._owner.free(self.pointer, stream=stream, idle=idle)
        except (Error, TypeError) as error:
            if getattr(error, "result", 0) != _abi.MISUSE:  # of the library: the address may be another block's already
                self._own()
            raise
