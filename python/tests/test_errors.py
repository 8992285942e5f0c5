"""Each failure raises its exception."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import memsaver
from memsaver import Saver, _library, errors
from memsaver._callbacks import call

MIB = 1 << 20


@pytest.mark.parametrize(("number", "kind"), errors.BY_RESULT.items())
def test_every_result_has_a_class(number: int, kind: type[errors.Error]) -> None:
    with pytest.raises(kind) as raised:
        call(lambda: number)
    assert raised.value.result == number
    assert isinstance(raised.value, memsaver.Error)
    assert str(raised.value) == _library.text(_library.library().memsaver_last_error())


def test_a_result_of_a_later_library() -> None:
    with pytest.raises(memsaver.Error) as raised:
        call(lambda: 77)
    assert (type(raised.value), raised.value.result) == (memsaver.Error, 77)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (memsaver.OutOfMemory, MemoryError),
        (memsaver.OutOfHostMemory, MemoryError),
        (memsaver.OutOfAddresses, MemoryError),
        (memsaver.Misuse, ValueError),
        (memsaver.NotIdle, TimeoutError),
        (memsaver.DeviceLost, RuntimeError),
        (memsaver.BackupDamaged, RuntimeError),
    ],
)
def test_they_are_what_python_calls_them(kind: type[memsaver.Error], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="the text"):
        raise kind("the text")


def test_misuse(saver: Saver) -> None:
    saver.allocate(1, "weights")
    with pytest.raises(memsaver.Misuse, match='did you mean "weights"') as raised:
        saver.pause("wieghts")
    assert raised.value.report is not None
    with pytest.raises(memsaver.Misuse):
        saver.free(12345)


def test_out_of_memory(saver: Saver) -> None:
    saver.allocate(100 * MIB, "a")
    with pytest.raises(memsaver.OutOfMemory) as raised:
        saver.allocate(200 * MIB, "b")
    error = raised.value
    assert error.tag == "b"
    assert error.needed_bytes >= 200 * MIB
    assert 100 * MIB < error.free_bytes < 200 * MIB
    assert error.report is None


def test_out_of_memory_of_a_resume(saver: Saver) -> None:
    saver.allocate(200 * MIB, "a")
    saver.pause("a")
    saver.allocate(100 * MIB, "b")
    with pytest.raises(memsaver.OutOfMemory) as raised:
        saver.resume("a")
    assert raised.value.report is not None
    saver.drop("b")
    saver.resume("a")


def test_out_of_host_memory() -> None:
    """Runs in a separate process, whose address space limit leaves no room for the backup."""
    program = """
import resource
import memsaver
saver = memsaver.Saver("host", host_capacity=256 << 20)
saver.arena("a", memsaver.HostBackup(storage="pageable"))
memory = saver.buffer(128 << 20, tag="a").memory()
memory[-1] = 42
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
try:
    saver.pause("a")
except memsaver.OutOfHostMemory as error:
    assert isinstance(error, MemoryError)
    assert memory[-1] == 42  # still active
    print("raised:", error)
"""
    path = str(Path(memsaver.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )
    assert 'tag "a"' in done.stdout, done


def test_out_of_addresses() -> None:
    """Runs in a separate process, whose address space ends long before the device's memory."""
    program = """
import resource
import memsaver
saver = memsaver.Saver("host", host_capacity=4 << 30)
saver.allocate(1 << 20, "a")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), resource.RLIM_INFINITY))
try:
    saver.allocate(512 << 20, "a")
except memsaver.OutOfAddresses as error:
    print("raised:", error)
print("released:", saver.pause("a").released_bytes)
"""
    path = str(Path(memsaver.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )
    assert "RLIMIT_AS" in done.stdout, done
    assert "released:" in done.stdout, done


def test_not_idle() -> None:
    """A second pause of a tag times out while the first one waits in its event."""
    first_is_in, second_is_done = threading.Event(), threading.Event()

    def on_event(event: memsaver.Event) -> None:
        if event.kind == memsaver.EventKind.PROGRESS:
            first_is_in.set()
            second_is_done.wait(30)

    with Saver("host", host_capacity=64 * MIB, on_event=on_event) as saver:
        saver.arena("a", memsaver.HostBackup())
        saver.allocate(MIB, "a")
        first = threading.Thread(target=saver.pause)
        first.start()
        assert first_is_in.wait(30)
        try:
            with pytest.raises(memsaver.NotIdle) as raised:
                saver.pause("a", timeout=0.05)
        finally:
            second_is_done.set()
            first.join()
        assert raised.value.report is not None


def test_backup_damaged(saver: Saver, tmp_path: Path) -> None:
    try:
        saver.arena("a", memsaver.FileBackup(tmp_path, verified=True))
    except memsaver.Unavailable as why:
        pytest.skip(str(why))
    buffer = saver.buffer(MIB, tag="a")
    buffer.memory()[:] = bytes(range(256)) * 4096
    saver.pause("a")
    descriptors = [link for link in Path("/proc/self/fd").iterdir() if str(tmp_path) in _target(link)]
    assert descriptors
    for descriptor in descriptors:
        with descriptor.open("r+b") as file:
            file.write(b"damaged")
    with pytest.raises(memsaver.BackupDamaged) as raised:
        saver.resume("a")
    assert raised.value.tag == "a"
    assert saver.totals("a").paused_bytes > 0
    saver.forget_backup("a")
    saver.resume("a")


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def test_unavailable() -> None:
    with pytest.raises(memsaver.Unavailable, match="no-such-driver"):
        Saver(0, cuda_library="no-such-driver.so")
    assert Saver(cuda_library="no-such-driver.so", host_capacity=MIB * 8).info().on_gpu is False


def test_savers_that_cannot_be() -> None:
    with pytest.raises(memsaver.Misuse, match="device must be"):
        Saver("gpu")  # type: ignore[arg-type]
    with pytest.raises(memsaver.Misuse, match="export"):
        Saver("host", export="all")  # type: ignore[arg-type]
    with pytest.raises(memsaver.Misuse):
        Saver("host", host_granularity=3)
    with pytest.raises(memsaver.Misuse):
        Saver(1 << 40)


def test_closed() -> None:
    saver = Saver("host", host_capacity=8 * MIB)
    arena = saver.arena("a")
    saver.allocate(1, "a")
    saver.close()
    saver.close()
    uses: list[Callable[[], object]] = [
        lambda: saver.allocate(1, "a"),
        saver.pause,
        saver.resume,
        lambda: arena.allocate(1),
        lambda: saver.region("a").__enter__(),
    ]
    for use in uses:
        with pytest.raises(memsaver.Misuse):
            use()
