"""Blocks, views and buffers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from conftest import fails

import memsaver
from memsaver import Saver
from memsaver._library import library
from memsaver.errors import BY_RESULT


def test_blocks(saver: Saver) -> None:
    pointer = saver.allocate(1000, "a")
    assert saver.owns(pointer + 999)
    assert saver.allocate(0, "a") == 0
    saver.free(0)
    saver.free(pointer)
    assert not saver.owns(pointer)
    pointer = saver.allocate(1 << 20, "a", stream=0)
    saver.free(pointer, stream=0)
    assert saver.allocate(1 << 20, "a", stream=0) == pointer  # at once


def test_arenas_keep_the_saver() -> None:
    arena = Saver("host", host_capacity=1 << 24).arena("a", capacity=2 << 20)
    gc.collect()
    numpy.asarray(buffer := arena.buffer(100))[:] = 1
    assert (arena.tag, arena.usage().used_bytes) == ("a", buffer.bytes)
    fails(memsaver.Misuse, "capacity", arena.allocate, 4 << 20)
    arena.saver.close()


@pytest.mark.parametrize("dtype", ["<f4", "float32", numpy.float32, numpy.dtype("f4")])
def test_buffer(saver: Saver, dtype: Any) -> None:
    with saver.buffer((3, 4), dtype, "a") as buffer:
        assert buffer.bytes == 48
        array = numpy.asarray(buffer)
        assert array.shape == (3, 4)
        assert array.dtype == numpy.float32
        assert array.ctypes.data == buffer.pointer
        array[:] = 7
        assert numpy.asarray(saver.view(buffer.pointer, (3, 4), dtype)).sum() == 84
        assert numpy.asarray(saver.view(buffer.pointer, numpy.int64(12), dtype)).sum() == 84
        assert bytes(buffer.memory()[:4]) == numpy.float32(7).tobytes()
    assert saver.totals("a").blocks == 0
    fails(memsaver.Misuse, "has been freed", buffer.memory)
    buffer.free()
    with saver.buffer((0, 4), dtype, "a") as buffer:  # without elements
        assert (buffer.pointer, len(buffer.memory()), numpy.asarray(buffer).shape) == (0, 0, (0, 4))


def test_a_buffer_that_could_not_be_freed(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer still owns its block."""
    buffer = saver.buffer(100, tag="a")
    failing = next(result for result, kind in BY_RESULT.items() if kind is memsaver.DriverError)
    fails(memsaver.Misuse, "stream= or idle=True", buffer.free, stream=0, idle=True)
    fails(TypeError, "stream must be an address", buffer.free, stream="0")
    with monkeypatch.context() as patched:
        patched.setattr(library(), "memsaver_arena_deallocate", lambda *_: failing)
        fails(memsaver.DriverError, "", buffer.free)
    assert len(buffer.memory()) == 100
    del buffer
    assert saver.totals("a").blocks == 0


def test_a_buffer_whose_block_somebody_else_freed(saver: Saver) -> None:
    """It does not free the address, which may have been reused."""
    buffer = saver.buffer(100, tag="a")
    numpy.asarray(buffer)[:] = 1
    saver.free(buffer.pointer, idle=True)
    fails(memsaver.Misuse, "no memory any more", numpy.asarray, buffer)
    fails(memsaver.Misuse, "", buffer.free)
    others = saver.allocate(100, "a")
    assert others == buffer.pointer
    buffer.free()
    del buffer
    assert saver.owns(others)


def a_buffer_in_a_region(saver: Saver) -> memsaver.Buffer:
    with saver.region("a"):
        return saver.buffer(1 << 20)


@pytest.mark.parametrize(
    "make",
    [lambda saver: saver.buffer(1 << 20, tag="a"), lambda saver: saver.arena("a").buffer(1 << 20), a_buffer_in_a_region],
)
def test_a_buffer_whose_tag_was_dropped(saver: Saver, make: Callable[[Saver], memsaver.Buffer]) -> None:
    """It neither frees nor shows the block of another tag that has its address."""
    buffer = make(saver)
    saver.drop("a")
    others = saver.allocate(1 << 20, "b")
    assert others == buffer.pointer
    fails(memsaver.Misuse, "no memory any more", buffer.memory)
    fails(memsaver.Misuse, "", buffer.free)
    buffer._own()
    del buffer
    gc.collect()
    assert saver.owns(others)
    buffer = make(saver)
    saver.close()
    fails(memsaver.Misuse, "no memory any more", numpy.asarray, buffer)


def test_a_buffer_lives_as_long_as_its_arrays(saver: Saver) -> None:
    array = numpy.asarray(saver.buffer(100, "<i8", "a"))
    part = array[10:20]
    memory = saver.arena("a").buffer(100).memory()
    assert saver.totals("a").blocks == 2
    del array, memory
    gc.collect()
    assert saver.totals("a").blocks == 1
    part[:] = 1
    del part
    gc.collect()
    assert saver.totals("a").blocks == 0


def test_views(saver: Saver) -> None:
    fails(memsaver.Misuse, "null", saver.view, 0, 1)
    fails(memsaver.Misuse, "shape", saver.view, 256, -1)
    fails(memsaver.Misuse, "element type", saver.view, 256, 1, object)
    view = saver.view(saver.allocate(8, "a"), 2, "<f4")
    assert not hasattr(view, "__cuda_array_interface__")
    assert "(2,) <f4" in repr(view)
    on_gpu = memsaver.View(4096, 2, "<f4", on_gpu=True).__cuda_array_interface__
    assert on_gpu == {"shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": None}


BYTES = bytearray(b"0123")
ARRAYS: list[Any] = [numpy.arange(6, dtype="<f4").reshape(2, 3), numpy.array(5, dtype="<c8")]


@pytest.mark.parametrize("data", [b"0123", BYTES, memoryview(b"0123")[1:3], memoryview(bytearray(b"0123"))[1:3], *ARRAYS])
def test_what_new_bytes_can_be(saver: Saver, data: Any) -> None:
    saver.arena("a", memsaver.HostBackup())
    buffer = saver.buffer(100, tag="a")
    saver.pause("a")
    saver.write_backup(buffer.pointer + 1, data)
    wanted = memoryview(data).tobytes()
    assert saver.read_backup(buffer.pointer + 1, len(wanted)) == wanted
    if isinstance(data, bytearray):
        data.append(0)  # no export of it remains


@pytest.mark.parametrize(
    ("error", "data", "text"),
    [
        (memsaver.Misuse, b"0", "no tag of this saver"),
        (memsaver.Misuse, numpy.zeros((0, 4)), "write_backup.0x100, 0 B"),
        (TypeError, numpy.zeros(10)[::2], "C-contiguous"),
        (TypeError, "0", ""),
    ],
)
def test_new_bytes_that_cannot_be(saver: Saver, error: Any, data: Any, text: str) -> None:
    fails(error, text, saver.write_backup, 256, data)


def test_no_view_of_paused_memory(saver: Saver) -> None:
    saver.arena("w", policy=memsaver.HostBackup())
    buffer = saver.buffer((4,), "<f4", "w")
    numpy.asarray(buffer)[:] = 3
    saver.pause("w")
    assert saver.is_paused(buffer.pointer + 15)
    for each in (buffer, saver.view(buffer.pointer, 16), saver.view(buffer.pointer + 8, 4)):
        fails(memsaver.Misuse, "paused; resume its tag", numpy.asarray, each)
        fails(memsaver.Misuse, "paused; resume its tag", each.memory)
    with saver.resume_async("w"):
        numpy.asarray(buffer)  # may be made while the bytes arrive
    assert not saver.is_paused(buffer.pointer, 16)
    assert numpy.asarray(buffer).tolist() == [3, 3, 3, 3]
