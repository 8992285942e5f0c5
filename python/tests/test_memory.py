"""Blocks, views and buffers."""

from __future__ import annotations

import ctypes
import gc
import math
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from checks import fails

import memsaver
from memsaver import Saver
from memsaver._library import library
from memsaver.errors import BY_RESULT


def test_allocate_and_free(saver: Saver) -> None:
    pointer = saver.allocate(1000, "a")
    assert pointer % 256 == 0
    assert saver.owns(pointer)
    assert saver.owns(pointer + 999)
    assert saver.totals("a").used_bytes == 1000
    saver.free(pointer)
    assert not saver.owns(pointer)
    assert saver.totals("a").blocks == 0
    assert saver.allocate(100, "a", alignment=1 << 16) % (1 << 16) == 0
    assert saver.allocate(0, "a") == 0
    assert not saver.owns(0)
    saver.free(0)


@pytest.mark.parametrize("wrong", [-1, 1 << 64])
def test_numbers_that_are_no_sizes(saver: Saver, wrong: int) -> None:
    fails(memsaver.Misuse, "", saver.allocate, wrong, "a")
    fails(memsaver.Misuse, "", saver.free, wrong)
    fails(memsaver.Misuse, "", saver.set_margin, wrong)
    fails((memsaver.Misuse, TypeError), "", saver.allocate, 1.5, "a")


STREAMS: list[Any] = [
    0,
    types.SimpleNamespace(cuda_stream=0),  # PyTorch
    types.SimpleNamespace(ptr=0),  # CuPy
    types.SimpleNamespace(handle=ctypes.c_void_p(None)),  # Numba
    types.SimpleNamespace(__cuda_stream__=lambda: (0, 0)),  # the protocol
]


@pytest.mark.parametrize("stream", STREAMS)
def test_streams(saver: Saver, stream: Any) -> None:
    pointer = saver.allocate(1 << 20, "a", stream=stream)
    saver.free(pointer, stream=stream)
    assert saver.allocate(1 << 20, "a", stream=stream) == pointer  # at once
    saver.free(pointer, idle=True)


def test_what_is_no_stream(saver: Saver) -> None:
    fails(TypeError, "stream must be an address", saver.allocate, 1, "a", stream="0")
    fails(memsaver.Misuse, "stream cannot be", saver.allocate, 1, "a", stream=1 << 64)  # ctypes: the default one
    pointer = saver.allocate(1, "a")
    fails(memsaver.Misuse, "stream= or idle=True", saver.free, pointer, stream=0, idle=True)


def test_arena(saver: Saver) -> None:
    arena = saver.arena("a", memsaver.Zero(), capacity=1 << 20, reserve=1 << 16)
    assert arena.tag == "a"
    assert arena.usage().mapped_bytes == 1 << 16
    for stream in (None, 0):
        pointer = arena.allocate(5000, stream=stream)
        assert arena.usage().used_bytes == 5000
        arena.free(pointer, stream=stream)
    arena.free(arena.allocate(1), idle=True)
    fails(memsaver.Misuse, "capacity", arena.allocate, 2 << 20)
    fails(memsaver.Misuse, "", saver.arena, "a", memsaver.Discard())
    fails(memsaver.Misuse, "", saver.arena, "b", device=1)


def test_arenas_keep_the_saver() -> None:
    arena = Saver("host", host_capacity=1 << 24).arena("a")
    gc.collect()
    numpy.asarray(arena.buffer(100))[:] = 1
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
    again = saver.buffer((3, 4), dtype, "a")
    again.free(idle=True)
    assert saver.allocate(48, "a") == again.pointer  # at once


def test_a_buffer_that_could_not_be_freed(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer still owns its block."""
    buffer = saver.buffer(100, tag="a")
    failing = next(result for result, kind in BY_RESULT.items() if kind is memsaver.DriverError)
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (memsaver.Misuse, "stream= or idle=True", {"stream": 0, "idle": True}),
        (TypeError, "stream must be an address", {"stream": "0"}),
        (memsaver.DriverError, "", {}),
    ]
    for error, text, options in refused:
        with monkeypatch.context() as patched:
            patched.setattr(library(), "memsaver_arena_deallocate", lambda *_: failing)
            fails(error, text, buffer.free, **options)
        assert saver.totals("a").blocks == 1
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


def test_a_buffer_without_elements(saver: Saver) -> None:
    buffer = saver.buffer((0, 4), "<f4", "a")
    assert buffer.pointer == 0
    assert numpy.asarray(buffer).shape == (0, 4)
    assert len(buffer.memory()) == 0
    buffer.free()


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


def test_views_that_cannot_be(saver: Saver) -> None:
    fails(memsaver.Misuse, "null", saver.view, 0, 1)
    fails(memsaver.Misuse, "shape", saver.view, 256, -1)
    fails(memsaver.Misuse, "element type", saver.view, 256, 1, object)


def test_interfaces(saver: Saver) -> None:
    view = saver.view(saver.allocate(8, "a"), 2, "<f4")
    assert not hasattr(view, "__cuda_array_interface__")
    assert "(2,) <f4" in repr(view)
    on_gpu = memsaver.View(4096, 2, "<f4", on_gpu=True)
    assert on_gpu.__cuda_array_interface__ == {
        "shape": (2,),
        "typestr": "<f4",
        "data": (4096, False),
        "version": 3,
        "stream": None,
    }
    assert not hasattr(on_gpu, "__array_interface__")
    fails(memsaver.Misuse, "on a GPU", on_gpu.memory)


READ_ONLY = numpy.arange(6, dtype="<f4").reshape(2, 3)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "data",
    [
        b"0123",
        bytearray(b"0123"),
        memoryview(b"0123")[1:3],
        memoryview(bytearray(b"0123"))[1:3],
        numpy.arange(6, dtype="<f4").reshape(2, 3),
        numpy.arange(6, dtype=">f8"),
        numpy.array(5, dtype="<c8"),
        READ_ONLY,
    ],
)
def test_what_new_bytes_can_be(saver: Saver, data: Any) -> None:
    saver.arena("a", memsaver.HostBackup())
    buffer = saver.buffer(100, tag="a")
    saver.pause("a")
    saver.write_backup(buffer.pointer + 1, data)
    wanted = memoryview(data).tobytes()
    assert saver.read_backup(buffer.pointer + 1, len(wanted)) == wanted
    if isinstance(data, bytearray):
        data.append(0)  # no export of it remains


def test_new_bytes_that_cannot_be(saver: Saver) -> None:
    saver.arena("a", memsaver.HostBackup())
    buffer = saver.buffer(1024, tag="a")
    fails(memsaver.Misuse, "it is not paused", saver.write_backup, buffer.pointer, b"0")
    fails(memsaver.Misuse, "", saver.read_backup, buffer.pointer, 10)
    saver.pause()
    without: list[Any] = [b"", bytearray(), numpy.zeros((0, 4))]
    for nothing in without:
        fails(memsaver.Misuse, "the size is 0", saver.write_backup, buffer.pointer, nothing)
    fails(memsaver.Misuse, "", saver.write_backup, -1, b"0")
    scattered: list[Any] = [numpy.zeros(10)[::2], memoryview(b"0123")[::2]]
    for data in scattered:
        fails(TypeError, "C-contiguous", saver.write_backup, buffer.pointer, data)
    fails(TypeError, "", saver.write_backup, buffer.pointer, "0")


def test_no_view_of_paused_memory(saver: Saver) -> None:
    saver.arena("w", policy=memsaver.HostBackup())
    buffer = saver.buffer((4,), "<f4", "w")
    view = saver.view(buffer.pointer, 16)
    part = saver.view(buffer.pointer + 8, 4)
    numpy.asarray(buffer)[:] = 3
    assert not saver.is_paused(buffer.pointer, 16)
    saver.pause("w")
    assert saver.is_paused(buffer.pointer)
    assert saver.is_paused(buffer.pointer + 15)
    for each in (buffer, view, part):
        fails(memsaver.Misuse, "paused; resume its tag", numpy.asarray, each)
        fails(memsaver.Misuse, "paused; resume its tag", each.memory)
    with saver.resume_async("w"):
        numpy.asarray(buffer)  # may be made while the bytes arrive
    assert not saver.is_paused(buffer.pointer, 16)
    assert numpy.asarray(buffer).tolist() == [3, 3, 3, 3]
    assert view.memory().nbytes == 16
    assert not saver.is_paused(id(saver))
    buffer.free()


def test_for_ever(saver: Saver) -> None:
    saver.allocate(200 << 20, "w")
    saver.pause("w")
    for within in (math.inf, 1e300, threading.TIMEOUT_MAX, 2.0**62 / 1e9):
        other = saver.allocate(200 << 20, "other")
        timer = threading.Timer(0.05, saver.free, [other], {"idle": True})
        timer.start()
        saver.resume("w", room_within=within)
        timer.join()
        saver.pause("w", timeout=within)
    for wrong in (-1, math.nan):
        fails(memsaver.Misuse, "0 or more seconds", saver.resume, "w", room_within=wrong)


def test_options_without_meaning(saver: Saver) -> None:
    refused: tuple[tuple[Any, str], ...] = (
        (memsaver.HostBackup(threads=10**6), "threads is 1000000; valid: 1 to 1024"),
        (memsaver.HostBackup(ring_bytes=1), "ring_bytes is 1 B"),
        (memsaver.HostBackup(refresh="once", retain=False), "retain"),
        (memsaver.HostBackup(check=True), "check"),
        (memsaver.FileBackup("/tmp", threads=10**6), "FileBackup::threads"),
        (memsaver.Discard(poison=256), "poison"),
        (memsaver.Discard(poison=-1), "poison"),
        (memsaver.HostBackup(refresh="never"), "refresh"),  # type: ignore[arg-type]
        (memsaver.HostBackup(storage="tape"), "storage"),  # type: ignore[arg-type]
        (memsaver.HostBackup(threads=-1), "threads cannot be -1"),
        (memsaver.HostBackup(ring_bytes=-1), "ring_bytes cannot be -1"),
        (memsaver.FileSource(ring_bytes=1 << 60), "FileSource::ring_bytes"),
    )
    for policy, text in refused:
        fails(memsaver.Misuse, text, saver.arena, "t", policy=policy)
