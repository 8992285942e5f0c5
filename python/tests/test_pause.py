"""Pause, resume and related operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from checks import fails

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


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("discard (poisoned)", Discard(poison=0xCD)),
        ("zero", Zero()),
        ("host", HostBackup()),
        ("host pageable", HostBackup(storage="pageable", ring_bytes=MIB, threads=2)),
        ("host, once", HostBackup(refresh="once", check=True)),
        ("host", HostBackup(retain=False)),
        ("verified", HostBackup(verified=True)),
        ("compressed", HostBackup(compressed=True)),
        ("compressed", HostBackup(compressed=True, verified=True)),
        ("file", FileBackup(Path("/tmp"))),
        ("file, once", FileBackup("/tmp", refresh="once", threads=1)),
        ("verified", FileBackup("/tmp", verified=True, retain=False)),
    ],
)
def test_policies(saver: Saver, name: str, policy: Policy) -> None:
    try:
        array = filled(saver, "a", policy)
    except memsaver.Unavailable as why:  # built without xxHash, or no codec
        pytest.skip(str(why))
    assert [row.policy for row in saver.usage()] == [name]
    keeps = isinstance(policy, HostBackup | FileBackup)
    if name == "compressed":
        array[:] = 7
    wanted = 0 if policy == Zero() else getattr(policy, "poison", array.copy())
    if keeps:
        saver.prepare("a")
    for _ in range(2):
        assert saver.pause("a").released_bytes >= SIZE
        paused = saver.totals("a")
        assert paused.mapped_bytes == 0
        assert (paused.backed_up_bytes > 0) == keeps
        assert (paused.backed_up_bytes < SIZE) == (not keeps or name == "compressed")
        assert saver.bytes_to_resume("a") >= SIZE
        resumed = saver.resume("a")
        assert resumed.mapped_bytes >= SIZE
        assert resumed.restored_bytes >= (SIZE if keeps else 0)
        assert resumed.elapsed_ns > 0
        assert saver.bytes_to_resume("a") == 0
        assert (saver.totals("a").backed_up_bytes > 0) == (keeps and getattr(policy, "retain", False))
        assert (array == wanted).all()


def test_once_saves_again_after_invalidate(saver: Saver) -> None:
    array = filled(saver, "a", HostBackup(refresh="once", check=True))
    assert saver.pause("a").saved_bytes >= SIZE
    saver.resume("a")
    assert saver.pause("a").saved_bytes == 0
    saver.resume("a")
    array[0] = 99
    fails(memsaver.Misuse, 'tag "a": bytes have changed', saver.pause, "a")
    saver.invalidate("a")
    assert saver.pause("a").saved_bytes >= SIZE
    saver.resume("a")
    assert array[0] == 99
    saver.pause("a")
    saver.forget_backup("a")
    assert saver.resume("a").restored_bytes == 0
    array[:] = 7
    saver.pause("a", policy=HostBackup())  # another policy for one pause
    saver.resume("a")
    assert (array == 7).all()
    saver.pause("a", policy=HostBackup())
    saver.resume("a", policy=Zero())  # or for one resume
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
    fails(TypeError, "", saver.pause, [1])


def test_names_that_are_no_english(saver: Saver) -> None:
    for tag in ("gewichte \N{SNOWMAN}", "\udcff"):  # the second is not valid UTF-8
        saver.allocate(1, tag)
        assert saver.pause(tag).released_bytes > 0
        assert tag in [row.tag for row in saver.usage()]


def test_orders(saver: Saver) -> None:
    saver.allocate(MIB, "a")
    every: list[dict[str, Any]] = [{}, {"streams": [0]}, {"idle": True}, {"timeout": 5}, {"timeout": float("inf")}]
    for options in every:
        paused = saver.pause("a", **options)
        assert paused.released_bytes >= MIB
        assert (paused.waited_ns == 0) == ("idle" in options)
        saver.resume("a")
        saver.trim("a", **options)
    wrong: list[dict[str, Any]] = [{"streams": []}, {"streams": [0], "idle": True}, {"events": [0]}, {"timeout": -1}]
    for options in wrong:
        fails(memsaver.Misuse, "", saver.pause, "a", **options)
    fails(TypeError, "", saver.pause, "a", events=["x"])


def test_exchange(saver: Saver) -> None:
    a = filled(saver, "lora/a", HostBackup())
    saver.pause("lora/a")
    b = filled(saver, "lora/b", HostBackup())
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
    for options in ({"streams": []}, {"timeout": -1}, {"room_within": -1}, {"policy_in": HostBackup()}):
        fails(memsaver.Misuse, "", saver.exchange, "lora/b", "lora/a", **options)  # type: ignore[arg-type]

    # With an empty list only a pause, or only a resume, remains.
    assert saver.exchange("lora/b", []).released_bytes >= SIZE
    report = saver.exchange([], Under("lora/"))
    assert report.handed_bytes == 0
    assert report.mapped_bytes >= 2 * SIZE
    with pytest.raises(memsaver.Misuse, match='unknown tag "c"') as misused:
        saver.exchange("c", "lora/a")
    assert misused.value.report == memsaver.Report()


def test_limits_and_unused_memory(saver: Saver) -> None:
    saver.free(saver.allocate(8 * MIB, "a"))
    assert saver.trim("a").released_bytes >= 8 * MIB
    assert saver.trim("a").released_bytes == 0
    saver.set_capacity("a", MIB)
    fails(memsaver.Misuse, "", saver.allocate, 2 * MIB, "a")
    saver.set_capacity("a", 0)
    saver.free(saver.allocate(2 * MIB, "a"), idle=True)
    saver.set_margin(250 * MIB)
    fails(memsaver.OutOfMemory, "", saver.allocate, 10 * MIB, "a")
    saver.set_margin(0)
    saver.allocate(10 * MIB, "a")
    for function in (saver.prepare, saver.invalidate):
        function()
        fails(memsaver.Misuse, "", function, "a")  # its policy keeps no bytes


def test_savers_with_options() -> None:
    with Saver("host", host_capacity=1 << 24, enabled=False) as saver:
        array = filled(saver, "a", HostBackup())
        assert saver.pause("a").released_bytes == 0
        assert kept(array)
        assert not saver.info().enabled
    with Saver("host", host_capacity=1 << 24, new_tags="with_policy", default_policy=Discard()) as saver:
        saver.arena("weights", Zero())
        with pytest.raises(memsaver.Misuse, match='did you mean "weights"') as raised:
            saver.allocate(1, "weigths")
        assert raised.value.tag == "weigths"
    with Saver("host", host_capacity=1 << 24, default_policy=Discard(poison=9)) as saver:
        array = filled(saver, "a")
        saver.pause()
        saver.resume()
        assert (array == 9).all()
