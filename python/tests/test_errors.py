"""Each failure raises its exception."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from checks import fails

import memsaver
from memsaver import Saver, _library, errors
from memsaver._callbacks import call

MIB = 1 << 20
BASES: dict[Any, type[Exception]] = {memsaver.Misuse: ValueError, memsaver.NotIdle: TimeoutError, memsaver.Error: Exception}
BASES |= dict.fromkeys((memsaver.OutOfMemory, memsaver.OutOfHostMemory, memsaver.OutOfAddresses), MemoryError)


@pytest.mark.parametrize(("number", "kind"), [*errors.BY_RESULT.items(), (77, memsaver.Error)])
def test_every_result_has_a_class(number: int, kind: type[errors.Error], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library.library(), "memsaver_torch_pop", lambda: number)
    gc.collect()  # what it frees may fail too, and would be the last error
    with pytest.raises(memsaver.Error) as raised:
        call("torch_pop")
    assert (type(raised.value), raised.value.result) == (kind, number)
    assert str(raised.value) == _library.text(_library.library().memsaver_last_error())
    assert isinstance(raised.value, BASES.get(kind, RuntimeError))


def test_savers_that_cannot_be() -> None:
    fails(memsaver.Unavailable, "no-such-driver", Saver, 0, cuda_library="no-such-driver.so")
    assert not Saver(cuda_library="no-such-driver.so", host_capacity=MIB * 8).info().on_gpu
    fails(memsaver.Misuse, "", Saver, "host", host_granularity=3)


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
