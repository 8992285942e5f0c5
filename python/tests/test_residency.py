"""More tags than memory, copies in flight, elastic memory, and bytes loaded from files."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
from checks import fails

import memsaver
from memsaver import Discard, FileSource, HostBackup, Misuse, NotIdle, OutOfMemory, Saver, SourceChanged

MIB = 1 << 20


def filled(saver: Saver, tag: str, byte: int, bytes: int = 4 * MIB, policy: memsaver.Policy | None = None) -> Any:
    saver.arena(tag, policy or HostBackup())
    array = numpy.asarray(saver.buffer(bytes, tag=tag))
    array[:] = byte
    return array


@pytest.fixture
def small() -> Iterator[Saver]:
    """A saver on 64 MiB, which fits only one of three tags at a time."""
    with Saver("host", host_capacity=64 * MIB) as made:
        yield made


# --- Uses ---


def test_uses_of_more_than_there_is_room(small: Saver) -> None:
    arrays = []
    for number in range(2):
        arrays.append(filled(small, f"model.{number}", number, 40 * MIB))
        small.pause()
    for number in (0, 1):
        with small.use(f"model.{number}", timeout=60, room_within=60) as use:
            assert use.lost == ()
            assert (arrays[number] == number).all()
            use.until(0)
            fails(OutOfMemory, "in use by 1", small.use, f"model.{1 - number}")
    usage = small.usage()
    residency = usage.residency
    assert (residency.evictions, residency.misses, residency.evicted_bytes) == (1, 4, 40 * MIB)
    assert usage.as_dict()["residency"]["misses"] == residency.misses
    assert all(row.evictable for row in usage)


def test_allocations_evict_if_they_may() -> None:
    with Saver("host", host_capacity=64 * MIB, evict_for_allocations=True) as saver:
        saver.arena("idle", Discard(), evictable=True)
        saver.allocate(40 * MIB, "idle")
        saver.allocate(40 * MIB, "new")
        assert {row.tag: row.state for row in saver.usage()} == {"idle": "paused", "new": "active"}


def test_a_use_keeps_its_tags(saver: Saver) -> None:
    array = filled(saver, "kept", 1)
    cache = saver.buffer(MIB, tag="cache")
    saver.pause()
    use = saver.use(["kept", "cache"])
    assert use.lost == ("cache",)
    assert {row.tag: row.users for row in saver.usage()}["kept"] == 1
    fails(NotIdle, "", saver.pause, "kept", timeout=0.01)
    fails(Misuse, "stream or an event", use.until)
    fails(Misuse, "event is null", use.until, event=0)
    with ThreadPoolExecutor() as threads:
        threads.submit(use.end).result()
    use.end()
    fails(Misuse, "use is null", use.until, 0)
    with saver.use(["kept", "cache"], idle=False) as again:
        assert again.lost == ()
    with saver.use("kept", streams=[0]):
        pass
    use = saver.use("kept")
    del use  # ends with its last reference
    gc.collect()
    assert (array == 1).all()
    assert saver.pause("kept", timeout=0).released_bytes >= 4 * MIB
    cache.free()
    fails(Misuse, "unknown tag", saver.use, "b")
    use = saver.use("kept")
    saver.close()
    use.end()


def test_reclaim(saver: Saver) -> None:
    arrays = [filled(saver, "idle", 1), filled(saver, "kept", 2)]
    saver.arena("low", evictable=True, priority=-1)
    saver.allocate(MIB, "low")
    saver.set_evictable("idle", True)
    saver.set_priority("idle", 3)
    assert {row.tag: row.priority for row in saver.usage()}["idle"] == 3
    first = saver.reclaim(1)
    assert 0 < first.evicted_bytes < 4 * MIB  # the tag of the lowest priority
    got = saver.reclaim(1 << 40)
    assert got.wanted_bytes == 1 << 40
    assert got.evicted_bytes == got.bytes >= 4 * MIB
    assert got.saved_bytes == 4 * MIB
    assert str(got).startswith("reclaimed ")
    assert "kept" in str(got)
    assert (arrays[1] == 2).all()
    fails(Misuse, "", saver.reclaim, 1, device=5)
    fails(Misuse, "priority", saver.set_priority, "idle", 1 << 40)


# --- Copies in flight ---


def test_bytes_arrive(saver: Saver) -> None:
    array = filled(saver, "a", 7)
    pointer = array.ctypes.data
    gate = saver.gate(pointer + 100, 1000)
    for _ in range(2):
        saver.pause("a")
        with saver.resume_async("a", first=[(pointer + MIB, MIB), (pointer, 1)]) as coming:
            gate.before(0)
            saver.use("a", await_bytes=False).end()
            coming.before(0, pointer, 10)
            coming.before(0)
            coming.wait(pointer + MIB, MIB)
            assert (array[MIB : 2 * MIB] == 7).all()
        assert coming.done()
        assert coming.report().restored_bytes == 4 * MIB
        assert (array == 7).all()
    saver.pause("a")
    saver.resume_async("a", policy=Discard(poison=9)).wait()
    assert (array == 9).all()
    fails(Misuse, "pass both pointer and bytes", coming.wait, pointer)
    fails(Misuse, "not in live blocks", coming.wait, id(saver), 1)
    fails(Misuse, "not in live blocks", saver.resume_async, "a", first=[(id(saver), 1)])
    saver.pause("a")
    saver.resume_async("a")  # dropped: waits
    gc.collect()
    assert {row.tag: row.state for row in saver.usage()}["a"] == "active"


def test_saving_ahead(saver: Saver) -> None:
    array = filled(saver, "a", 7, policy=HostBackup(refresh="once"))
    with saver.save("a", idle=True) as saved:
        pass
    assert saved.report().saved_bytes == 4 * MIB
    assert saver.pause("a").saved_bytes == 0
    saver.resume("a")
    assert (array == 7).all()
    filled(saver, "b", 1)
    fails(Misuse, "", saver.save, "b")


# --- Elastic memory ---


def test_elastic_memory(saver: Saver) -> None:
    arena = saver.arena("kv", HostBackup())
    with arena.elastic(63 * MIB, granularity=MIB) as kv:
        assert (kv.capacity, kv.granularity, kv.committed_bytes) == (63 * MIB, MIB, 0)
        kv.commit(MIB, 3 * MIB)
        array = numpy.asarray(kv.view((3, MIB), offset=MIB))
        array[:] = 5
        assert saver.totals("kv").elastic_bytes == 3 * MIB
        kv.release(3 * MIB, MIB, idle=True)
        assert (array[:2] == 5).all()
        kv.release(MIB, MIB, streams=[0])
        kv.resize(10 * MIB)
        kv.resize(0)
        assert kv.committed_bytes == 0
        fails(Misuse, "", kv.commit, 63 * MIB, 1)
    fails(Misuse, "range is null", kv.commit, 0, 1)
    assert saver.totals("kv").blocks == 0


def test_owners_of_elastic_memory_are_asked(small: Saver) -> None:
    asked: list[int] = []

    def spare(wanted: int) -> int:
        asked.append(wanted)
        if len(asked) > 2:
            raise LookupError("nothing to spare")
        kv.release(0, 16 * MIB)
        return 16 * MIB

    kv = small.arena("kv").elastic(64 * MIB, granularity=16 * MIB, on_reclaim=spare)
    kv.commit(0, 48 * MIB)
    block = small.allocate(20 * MIB, "weights")
    assert len(asked) == 1
    assert kv.committed_bytes == 32 * MIB
    small.free(block)
    kv.commit(0, 16 * MIB)
    assert small.reclaim(64 * MIB).elastic_bytes == 16 * MIB
    fails(LookupError, "", small.allocate, 60 * MIB, "weights")
    kv.end()


def test_elastic_memory_that_its_own_commit_ends() -> None:
    """`on_no_room` runs during the commit."""
    asked: list[int] = []

    def give_up(need: memsaver.NoRoom) -> bool:
        asked.append(need.bytes)
        kv.end()
        fails(Misuse, "range is null", kv.commit, 0, 1)
        return len(asked) == 1  # the commit retries, and finds its range

    with Saver("host", host_capacity=32 * MIB, on_no_room=give_up) as saver:
        kv = saver.arena("kv").elastic(256 * MIB, granularity=2 * MIB)
        kv.commit(0, 16 * MIB)
        fails(OutOfMemory, "", kv.commit, 16 * MIB, 64 * MIB)
        assert len(asked) == 2
        assert saver.totals("kv").blocks == 0
        fails(Misuse, "range is null", kv.release, 0, 16 * MIB)


def test_elastic_memory_that_ends_while_another_thread_commits() -> None:
    inside, ended = threading.Event(), threading.Event()

    def wait(need: memsaver.NoRoom) -> bool:
        inside.set()
        assert ended.wait(60)
        return False

    with Saver("host", host_capacity=32 * MIB, on_no_room=wait) as saver, ThreadPoolExecutor() as threads:
        kv = saver.arena("kv").elastic(256 * MIB, granularity=2 * MIB)
        kv.commit(0, 16 * MIB)
        other = threads.submit(kv.commit, 16 * MIB, 64 * MIB)
        assert inside.wait(60)
        kv.end()
        fails(Misuse, "range is null", kv.commit, 0, 1)
        assert saver.totals("kv").blocks == 8
        ended.set()
        fails(OutOfMemory, "", other.result)
        assert saver.totals("kv").blocks == 0


# --- Files ---


def test_bytes_that_a_file_has(saver: Saver, tmp_path: Path) -> None:
    path = tmp_path / "model"
    content = numpy.arange(3 * MIB, dtype="u1")
    path.write_bytes(b"header" + content.tobytes())
    saver.arena("model", FileSource(threads=2))
    array = numpy.asarray(saver.buffer(3 * MIB, tag="model"))
    pointer = array.ctypes.data
    saver.load(pointer, 3 * MIB, path, 6)
    assert (array == content).all()
    array[:1000] = 3
    saver.invalidate_range(pointer, 1000)
    assert saver.pause("model").saved_bytes == 1000
    path.write_bytes(b"other")
    fails(SourceChanged, "model", saver.resume, "model")
    saver.resume("model", policy=Discard())
    fails(memsaver.DriverError, "nobody", saver.load, pointer, 6, str(tmp_path / "nobody"))
    saver.load(pointer, 5, path)
    assert array[:5].tobytes() == b"other"
