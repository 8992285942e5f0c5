"""Pause, resume and related operations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import memsaver
from memsaver import Discard, FileBackup, HostBackup, Policy, Saver, Under, Zero

MIB = 1 << 20
SIZE = MIB + 1000


def filled(saver: Saver, tag: str, policy: Policy | None = None) -> Any:
    saver.arena(tag, policy)
    array = numpy.asarray(saver.buffer(SIZE, tag=tag))
    array[:] = numpy.arange(SIZE) % 251
    return array


def kept(array: Any) -> bool:
    return bool((array == numpy.arange(SIZE) % 251).all())


def backups(folder: Path) -> list[Policy]:
    return [
        HostBackup(),
        HostBackup(storage="pageable", ring_bytes=MIB, threads=2),
        HostBackup(refresh="once", check=True),
        HostBackup(retain=False),
        HostBackup(verified=True),
        FileBackup(folder),
        FileBackup(str(folder), refresh="once", threads=1),
        FileBackup(folder, verified=True, retain=False),
    ]


@pytest.mark.parametrize("number", range(8))
def test_backups_keep_bytes(saver: Saver, tmp_path: Path, number: int) -> None:
    policy = backups(tmp_path)[number]
    try:
        array = filled(saver, "a", policy)
    except memsaver.Unavailable as why:  # built without xxHash
        pytest.skip(str(why))
    saver.prepare("a")
    for _ in range(2):
        paused = saver.pause("a")
        assert paused.released_bytes >= SIZE
        assert saver.totals("a").mapped_bytes == 0
        assert saver.totals("a").backed_up_bytes >= SIZE
        assert saver.bytes_to_resume("a") >= SIZE
        resumed = saver.resume("a")
        assert resumed.mapped_bytes >= SIZE
        assert resumed.restored_bytes >= SIZE
        assert resumed.elapsed_ns > 0
        assert saver.bytes_to_resume("a") == 0
        assert kept(array)


@pytest.mark.parametrize("verified", [False, True])
def test_compressed_backups_are_smaller(saver: Saver, verified: bool) -> None:
    try:
        array = filled(saver, "a", HostBackup(compressed=True, verified=verified))
    except memsaver.Unavailable as why:  # no codec, or no xxHash
        pytest.skip(str(why))
    array[:] = 7
    for _ in range(2):
        saver.pause("a")
        assert 0 < saver.totals("a").backed_up_bytes < SIZE
        saver.resume("a")
        assert bool((array == 7).all())


def test_the_policies_are_what_they_are_called(saver: Saver, tmp_path: Path) -> None:
    rows: dict[str, Policy] = {
        "discard": Discard(),
        "zero": Zero(),
        "host": HostBackup(),
        "host, once": HostBackup(refresh="once"),
        "file": FileBackup(tmp_path),
    }
    for name, policy in rows.items():
        saver.arena(name, policy)
    for row in saver.usage():
        assert row.policy.split(",")[0] == row.tag.split(",")[0]


def test_zero_and_poison(saver: Saver) -> None:
    zero, poisoned = filled(saver, "zero", Zero()), filled(saver, "poisoned", Discard(poison=0xCD))
    saver.pause()
    saver.resume()
    assert not zero.any()
    assert (poisoned == 0xCD).all()


def test_once_saves_again_after_invalidate(saver: Saver) -> None:
    array = filled(saver, "a", HostBackup(refresh="once", check=True))
    assert saver.pause("a").saved_bytes >= SIZE
    saver.resume("a")
    assert saver.pause("a").saved_bytes == 0
    saver.resume("a")
    array[0] = 99
    with pytest.raises(memsaver.Misuse, match='tag "a": bytes have changed'):
        saver.pause("a")
    saver.invalidate("a")
    assert saver.pause("a").saved_bytes >= SIZE
    saver.resume("a")
    assert array[0] == 99
    saver.pause("a")
    saver.forget_backup("a")
    assert saver.resume("a").restored_bytes == 0


def test_another_policy_for_once(saver: Saver) -> None:
    array = filled(saver, "a", Discard())
    saver.pause("a", policy=HostBackup())
    saver.resume("a")
    assert kept(array)
    saver.pause("a", policy=HostBackup())
    assert saver.resume("a", policy=Zero()).restored_bytes >= 0
    assert not array.any()


def test_lists_of_tags(saver: Saver) -> None:
    for tag in ("lora/1", "lora/2", "base"):
        saver.allocate(MIB, tag)

    def paused() -> set[str]:
        return {row.tag for row in saver.usage() if row.state == "paused"}

    assert saver.pause([]).released_bytes == 0
    saver.pause(Under("nothing/"))
    assert paused() == set()
    saver.pause("base")
    assert paused() == {"base"}
    saver.pause(Under("lora/"))
    assert paused() == {"base", "lora/1", "lora/2"}
    saver.resume(["lora/2", "base"])
    assert paused() == {"lora/1"}
    saver.resume(tag for tag in ["lora/1"])
    saver.pause()
    assert saver.bytes_to_resume() >= 3 * MIB
    assert saver.bytes_to_resume(["base"]) < saver.bytes_to_resume()
    saver.resume()
    assert paused() == set()
    with pytest.raises(TypeError):
        saver.pause([1])  # type: ignore[list-item]


def test_names_that_are_no_english(saver: Saver) -> None:
    for tag in ("gewichte \N{SNOWMAN}", "\udcff"):  # the second is not valid UTF-8
        saver.allocate(1, tag)
        assert saver.pause(tag).released_bytes > 0
        assert tag in [row.tag for row in saver.usage()]


def test_orders(saver: Saver) -> None:
    saver.allocate(MIB, "a")
    every: list[dict[str, Any]] = [{}, {"streams": [0]}, {"idle": True}, {"timeout": 5}, {"timeout": float("inf")}, {"timeout": 1e300}]
    for options in every:
        assert saver.pause("a", **options).released_bytes >= MIB
        saver.resume("a")
        saver.trim("a", **options)
    with pytest.raises(memsaver.Misuse):
        saver.pause("a", streams=[])
    with pytest.raises(memsaver.Misuse):
        saver.pause("a", streams=[0], idle=True)
    with pytest.raises(memsaver.Misuse):
        saver.pause("a", events=[0])  # null
    with pytest.raises(memsaver.Misuse):
        saver.pause("a", timeout=-1)
    with pytest.raises(memsaver.Misuse):
        saver.pause("a", timeout=float("nan"))
    with pytest.raises(TypeError):
        saver.pause("a", events=["x"])


def test_exchange(saver: Saver) -> None:
    a = filled(saver, "lora/a", HostBackup())
    saver.pause("lora/a")
    b = filled(saver, "lora/b", HostBackup())
    for _ in range(2):
        report = saver.exchange("lora/b", "lora/a")
        assert report.handed_bytes == report.mapped_bytes >= SIZE
        assert report.released_bytes == 0
        assert report.saved_bytes >= SIZE
        assert report.restored_bytes >= SIZE
        assert str(report).startswith("handed over 1.")
        assert kept(a)
        saver.exchange(["lora/a"], iter(["lora/b"]))
        assert kept(b)

    # Options for either side.
    saver.exchange("lora/b", "lora/a", streams=[0], timeout=60, room_within=5)
    report = saver.exchange("lora/a", "lora/b", idle=True, policy_out=Discard(), policy_in=Zero())
    assert report.saved_bytes == 0
    assert not b.any()

    # With an empty list only a pause, or only a resume, remains.
    assert saver.exchange("lora/b", []).released_bytes >= SIZE
    report = saver.exchange([], Under("lora/"))
    assert report.handed_bytes == 0
    assert report.mapped_bytes >= 2 * SIZE


def test_exchange_that_cannot_be(saver: Saver) -> None:
    saver.allocate(150 * MIB, "a")
    saver.pause("a")
    saver.allocate(150 * MIB, "other")
    b = filled(saver, "b", HostBackup())
    with pytest.raises(memsaver.OutOfMemory) as raised:
        saver.exchange("b", "a", room_within=0.02)
    assert raised.value.tag == "a"
    assert raised.value.report is not None
    assert raised.value.report.handed_bytes == 0
    both, unknown = "is in both lists", 'unknown tag "c"'
    for out, in_, text in (("a", "a", both), (None, None, both), ("c", "a", unknown), ("b", "c", unknown)):
        with pytest.raises(memsaver.Misuse, match=text) as misused:
            saver.exchange(out, in_)
        assert misused.value.report == memsaver.Report()
    wrong: list[dict[str, Any]] = [{"policy_in": HostBackup()}, {"streams": []}, {"timeout": -1}, {"room_within": -1}]
    for options in wrong:
        with pytest.raises(memsaver.Misuse):
            saver.exchange("b", "a", **options)
    with pytest.raises(TypeError):
        saver.exchange("b", [1])  # type: ignore[list-item]
    assert kept(b)
    assert saver.exchange(["b", "other"], "a").handed_bytes > 0


def test_trim(saver: Saver) -> None:
    saver.free(saver.allocate(8 * MIB, "a"))
    assert saver.trim("a").released_bytes >= 8 * MIB
    assert saver.trim("a").released_bytes == 0


def test_drop(saver: Saver) -> None:
    arena = saver.arena("a", HostBackup())
    pointer = arena.allocate(MIB)
    saver.drop("a")
    assert not saver.owns(pointer)
    with pytest.raises(memsaver.Misuse):
        saver.pause("a")
    with pytest.raises(memsaver.Misuse, match="has been dropped"):
        arena.allocate(1)
    saver.arena("a", Zero())  # the name is free again
    with pytest.raises(memsaver.Misuse, match="has been dropped") as raised:
        arena.usage()  # and it does not refer to the new tag
    assert raised.value.tag == "a"
    arena = saver.arena("b")
    saver.close()
    assert arena.usage().arenas == 1
    saver = memsaver.Saver("host", host_capacity=256 * MIB)
    saver.arena("a")
    saver.drop(None)
    assert [row.tag for row in saver.usage() if row.state != "plain"] == []


def test_capacity_and_margin(saver: Saver) -> None:
    saver.arena("a")
    saver.set_capacity("a", MIB)
    with pytest.raises(memsaver.Misuse):
        saver.allocate(2 * MIB, "a")
    saver.set_capacity("a", 0)
    saver.free(saver.allocate(2 * MIB, "a"), idle=True)
    saver.set_margin(250 * MIB)
    with pytest.raises(memsaver.OutOfMemory):
        saver.allocate(10 * MIB, "a")
    saver.set_margin(0)
    saver.allocate(10 * MIB, "a")


def test_no_policy_that_keeps_bytes(saver: Saver) -> None:
    saver.allocate(1, "a")
    for function in (saver.prepare, saver.invalidate):
        function()
        with pytest.raises(memsaver.Misuse):
            function("a")


def test_switched_off() -> None:
    with Saver("host", host_capacity=1 << 24, enabled=False) as saver:
        array = filled(saver, "a", HostBackup())
        assert saver.pause("a").released_bytes == 0
        assert kept(array)
        assert not saver.info().enabled
        saver.write_backup(array.ctypes.data + 5, b"new")  # to the memory itself
        assert array.tobytes()[4:9] == b"\4new\10"


def test_default_policy() -> None:
    with Saver("host", host_capacity=1 << 24, default_policy=Zero()) as saver:
        array = filled(saver, "a")
        saver.pause()
        saver.resume()
        assert not array.any()


def test_new_tags() -> None:
    with Saver("host", host_capacity=1 << 24, new_tags="with_policy") as saver:
        arena = saver.arena("weights", Zero())
        saver.allocate(1, "weights")
        assert saver.arena("weights").usage() == arena.usage()
        uses: list[Callable[[str], object]] = [
            saver.arena,
            lambda tag: saver.allocate(1, tag),
            lambda tag: saver.region(tag).__enter__(),
        ]
        for use in uses:
            with pytest.raises(memsaver.Misuse, match='did you mean "weights"') as raised:
                use("weigths")
            assert raised.value.tag == "weigths"
        assert [row.tag for row in saver.usage()] == ["weights"]
    with pytest.raises(memsaver.Misuse, match="new_tags"):
        Saver("host", new_tags="never")  # type: ignore[arg-type]


def test_what_is_no_policy(saver: Saver) -> None:
    with pytest.raises(TypeError, match="a policy must be"):
        saver.arena("a", "host")  # type: ignore[arg-type]
