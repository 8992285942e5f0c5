"""What the methods of a saver do: results, failures, and objects that end. test_arguments.py has what they pass to C."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import MIB, fails

import memsaver
from memsaver import FileSource, HostBackup, Misuse, NotIdle, OutOfMemory, Saver


def filled(saver: Saver, tag: str, byte: int, bytes: int = 4 * MIB, policy: memsaver.Policy | None = None) -> Any:
    saver.arena(tag, policy or HostBackup())
    array = numpy.asarray(saver.buffer(bytes, tag=tag))
    array[:] = byte
    return array


@pytest.mark.parametrize("tag", ["weights", "gewichte \N{SNOWMAN}", "\udcff"])  # the last is not valid UTF-8
def test_pause_and_resume(saver: Saver, tag: str) -> None:
    array = filled(saver, tag, 7)
    paused = saver.pause(tag, timeout=60)
    assert (paused.released_bytes, paused.saved_bytes, paused.mapped_bytes) == (4 * MIB, 4 * MIB, 0)
    assert [(row.tag, row.state) for row in saver.usage()] == [(tag, "paused")]
    assert saver.bytes_to_resume(tag) == 4 * MIB
    assert saver.resume(tag, room_within=5).restored_bytes == 4 * MIB
    assert (array == 7).all()
    saver.free(saver.allocate(8 * MIB, tag), idle=True)
    assert saver.trim().released_bytes == 8 * MIB


def test_regions(saver: Saver) -> None:
    region, arena = saver.region("a"), saver.arena("b")
    with pytest.raises(KeyError), region:
        raise KeyError
    with region, saver.region(arena), region:  # entered again
        saver.allocate(7)
        with saver.outside():
            plain = saver.buffer(100)
        with ThreadPoolExecutor() as threads:
            fails(Misuse, "on the thread that opened it", threads.submit(region.__exit__, None, None, None).result)
        with saver.region("inner"):
            fails(Misuse, "before the regions around it", region.__exit__, None, None, None)
    fails(Misuse, "no open region", saver.allocate, 1)
    assert saver.totals("a").used_bytes == 7
    saver.pause()
    assert plain.memory().nbytes == 100
    with Saver("host", host_capacity=64 * MIB) as other, other.region("a"):
        fails(Misuse, "another saver", other.region(arena).__enter__)
        other.close()  # ends its regions


def test_uses(saver: Saver) -> None:
    kept = filled(saver, "kept", 1)
    saver.allocate(MIB, "cache")
    saver.pause()
    use = saver.use(["kept", "cache"])
    assert use.lost == ("cache",)
    assert {row.tag: row.users for row in saver.usage()}["kept"] == saver.usage().residency.misses == 1
    got = saver.reclaim(1 << 40)
    assert (got.wanted_bytes, got.evicted_bytes, got.bytes) == (1 << 40, 0, 0)
    assert "kept" in str(got)
    fails(NotIdle, "", saver.pause, "kept", timeout=0.01)
    use.end()
    use.end()
    fails(Misuse, "use is null", use.until, 0)
    use = saver.use("kept")
    del use  # ends with its last reference
    gc.collect()
    got = saver.reclaim(1 << 40)
    assert (got.evicted_bytes, got.saved_bytes, got.bytes) == (kept.nbytes + MIB, kept.nbytes, kept.nbytes + MIB)
    use = saver.use("kept")
    saver.close()
    use.end()


def test_bytes_arrive(saver: Saver) -> None:
    array = filled(saver, "a", 7)
    pointer = array.ctypes.data
    saver.pause("a")
    with saver.resume_async("a", first=[(pointer + MIB, MIB), (pointer, 1)]) as coming:
        saver.gate(pointer + 100, 1000).before(0)
        coming.before(0, pointer, 10)
        coming.wait(pointer + MIB, MIB)
        assert (array[MIB : 2 * MIB] == 7).all()
    assert (coming.done(), coming.report().restored_bytes) == (True, 4 * MIB)
    fails(Misuse, "not in live blocks", coming.wait, id(saver), 1)
    saver.pause("a")
    saver.resume_async("a")  # dropped: waits
    gc.collect()
    assert saver.usage().arenas[0].state == "active"
    assert (array == 7).all()


def test_elastic_memory(saver: Saver) -> None:
    with saver.arena("kv").elastic(63 * MIB, granularity=MIB) as kv:
        assert (kv.capacity, kv.granularity, kv.committed_bytes) == (63 * MIB, MIB, 0)
        kv.commit(MIB, 3 * MIB)
        array = numpy.asarray(kv.view((3, MIB), offset=MIB))
        array[:] = 5
        assert array.ctypes.data == kv.data + MIB
        assert saver.totals("kv").elastic_bytes == kv.committed_bytes == 3 * MIB
        kv.resize(0)
        assert kv.committed_bytes == 0
        fails(Misuse, "offset cannot be -1", kv.view, 1, offset=-1)
    fails(Misuse, "range is null", kv.commit, 0, 1)


def test_owners_of_elastic_memory_are_asked() -> None:
    asked: list[int] = []

    def spare(wanted: int) -> int:
        asked.append(wanted)
        if len(asked) > 1:
            raise LookupError("nothing to spare")
        kv.release(0, 16 * MIB)
        return 16 * MIB

    with Saver("host", host_capacity=64 * MIB) as saver:
        kv = saver.arena("kv").elastic(64 * MIB, granularity=16 * MIB, on_reclaim=spare)
        kv.commit(0, 48 * MIB)
        saver.allocate(20 * MIB, "weights")
        assert (len(asked), kv.committed_bytes) == (1, 32 * MIB)
        fails(LookupError, "", saver.allocate, 60 * MIB, "weights")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_elastic_memory_that_ends_during_a_commit(elsewhere: bool) -> None:
    """On this thread or another one: the commit goes on, and the last call ends the range."""
    asked: list[int] = []

    def give_up(need: memsaver.NoRoom) -> bool:
        asked.append(need.bytes)
        threads.submit(kv.end).result() if elsewhere else kv.end()
        fails(Misuse, "range is null", kv.commit, 0, 1)
        assert saver.totals("kv").blocks == 1
        return len(asked) == 1  # the commit retries, and finds its range

    with Saver("host", host_capacity=32 * MIB, on_no_room=give_up) as saver, ThreadPoolExecutor() as threads:
        kv = saver.arena("kv").elastic(256 * MIB, granularity=2 * MIB)
        kv.commit(0, MIB)
        fails(OutOfMemory, "", kv.commit, 0, 64 * MIB)
        assert len(asked) == 2
        assert saver.totals("kv").blocks == 0


def test_operations_that_no_other_test_calls(saver: Saver, tmp_path: Path) -> None:
    """For the types of their arguments, which only a call of C needs."""
    (tmp_path / "model").write_bytes(b"header" + b"7" * MIB)
    a, b = filled(saver, "a", 1, policy=HostBackup(refresh="once")), filled(saver, "b", 2)
    model = filled(saver, "model", 0, MIB, FileSource())
    saver.load(model.ctypes.data, MIB, tmp_path / "model", 6)
    saver.invalidate_range(model.ctypes.data, 1000)
    assert (model.tobytes(), saver.pause("model").saved_bytes) == (b"7" * MIB, 1000)
    saver.pause("b")
    assert saver.save("a").report().saved_bytes == saver.exchange("a", "b").handed_bytes == a.nbytes
    assert (b == 2).all()
    saver.prepare("b")
    saver.invalidate("b")
    saver.forget_backup("a")
    saver.set_retain("b", False)
    saver.set_capacity("b", MIB)
    saver.set_margin(MIB)
    saver.set_evictable("b", True)
    saver.set_priority("b", 7)
    assert {row.tag: row.priority for row in saver.usage()}["b"] == 7
