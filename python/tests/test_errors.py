"""Each failure raises its exception; those of the driver come from the stub of libcuda of the C++ tests, which
MEMSAVER_STUB_LIBCUDA names.
"""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Any

import pytest
from conftest import MIB, fails

import memsaver
from memsaver import Saver, _abi, _library, errors
from memsaver._callbacks import call

BASES: dict[Any, type[Exception]] = {memsaver.Misuse: ValueError, memsaver.NotIdle: TimeoutError, memsaver.Error: Exception}
BASES |= dict.fromkeys((memsaver.OutOfMemory, memsaver.OutOfHostMemory, memsaver.OutOfAddresses), MemoryError)


@pytest.mark.parametrize(("number", "kind"), [*errors.BY_RESULT.items(), (77, memsaver.Error)])
def test_every_result_has_a_class(number: int, kind: type[errors.Error], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library.library(), "memsaver_torch_pop", lambda: number)
    gc.collect()  # what it frees may fail too, and would be the last error
    with pytest.raises(memsaver.Error) as raised:
        call("torch_pop")
    assert (type(raised.value), raised.value.result) == (kind, number)
    assert str(raised.value) == _abi.text(_library.library().memsaver_last_error())
    assert isinstance(raised.value, BASES.get(kind, RuntimeError))


def test_savers_that_cannot_be() -> None:
    fails(memsaver.Unavailable, "no-such-driver", Saver, 0, cuda_library="no-such-driver.so")
    assert not Saver(cuda_library="no-such-driver.so", host_capacity=MIB * 8).info().on_gpu
    assert memsaver.gpu_count() >= memsaver.gpu_available()


def test_out_of_memory(saver: Saver) -> None:
    saver.allocate(100 * MIB, "a")
    with pytest.raises(memsaver.OutOfMemory) as raised:
        saver.allocate(200 * MIB, "b")
    error = raised.value
    assert error.tag == "b"
    assert error.needed_bytes >= 200 * MIB
    assert 100 * MIB < error.free_bytes < 200 * MIB
    assert error.report is None
    saver.pause("a")
    saver.allocate(200 * MIB, "b")
    with pytest.raises(memsaver.OutOfMemory) as raised:
        saver.resume("a")
    assert raised.value.report is not None
    assert raised.value.report.mapped_bytes == 0


@pytest.fixture
def stub() -> ctypes.CDLL:
    if "MEMSAVER_STUB_LIBCUDA" not in os.environ:
        pytest.skip("MEMSAVER_STUB_LIBCUDA names no stub of libcuda; ctest sets it")
    return ctypes.CDLL(os.environ["MEMSAVER_STUB_LIBCUDA"])


def test_a_saver_on_a_gpu(stub: ctypes.CDLL) -> None:
    with Saver(0, cuda_library=stub._name) as gpu:
        assert gpu.info().on_gpu
        assert "Stub GPU" in gpu.info().name
        buffer = gpu.buffer((4, 4), "<f4", "tag")
        assert buffer.__cuda_array_interface__["data"] == (buffer.pointer, False)
        assert not hasattr(buffer, "__array_interface__")
        fails(memsaver.Misuse, "on a GPU", buffer.memory)
        stub.memsaver_stub_fail(b"cuMemRelease", 1)  # CUDA_ERROR_INVALID_VALUE
        with pytest.raises(memsaver.DriverError) as raised:
            gpu.pause("tag")
        stub.memsaver_stub_fail(b"cuMemRelease", 0)
        error = raised.value
        assert (error.driver_code, error.driver_name, error.tag) == (1, "CUDA_ERROR_INVALID_VALUE", "tag")
        assert error.report is not None
        assert error.report.held_bytes > 0
        assert gpu.pause("tag").released_bytes > 0
