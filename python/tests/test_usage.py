"""Memory usage, as data and as a table."""

from __future__ import annotations

import json

from conftest import MIB

import memsaver
from memsaver import Saver, Under, format_bytes, reports


def test_rows(saver: Saver) -> None:
    saver.arena("weights", memsaver.HostBackup())
    saver.allocate(MIB, "weights")
    saver.allocate(1000, 'a "quoted"\ttag')
    saver.pause("weights")
    usage = saver.usage()
    weights, cache = usage
    assert (saver.totals().used_bytes, saver.totals(Under("wei")).arenas) == (MIB + 1000, 1)
    info = saver.info()
    assert (info.on_gpu, info.device, info.enabled, info.granularity) == (False, 0, True, 1 << 16)
    assert (info.total_bytes, info.name) == (256 * MIB, "host memory")
    assert (weights.tag, weights.device, weights.policy, weights.state) == ("weights", 0, "host", "paused")
    assert (weights.used_bytes, weights.mapped_bytes, weights.blocks, weights.pauses) == (MIB, 0, 1, 1)
    assert (cache.state, cache.used_bytes) == ("active", 1000)
    assert (usage.devices[0].total_bytes, usage.devices[0].known) == (256 * MIB, True)
    assert usage.host_bytes >= MIB
    assert str(usage).splitlines()[-1].startswith("host: ")
    data = usage.as_dict()
    assert data["arenas"][1]["tag"] == 'a "quoted"\ttag'
    assert json.loads(json.dumps(data)) == data
    rows = '[{"tag":"a","device":0,"policy":"zero","state":"active","new":1}]'  # a later library tells more
    later = reports.usage_of(f'{{"arenas":{rows},"devices":[],"residency":{{}},"host_bytes":0}}')
    assert later.arenas == [memsaver.ArenaUsage(tag="a", device=0, policy="zero", state="active")]


def test_a_table(saver: Saver) -> None:
    saver.allocate(MIB, "weights")
    lines = str(saver.usage()).splitlines()
    assert lines[0].split() == ["tag", "device", "policy", "state", "reserved", "mapped", "peak", "used", "backed", "up"]
    assert lines[1].startswith("weights       0  discard")
    assert lines[1].count(" 1.00 MiB") == 3  # mapped, its peak, and used
    assert lines[2].startswith("device 0: ")
    with saver.use("weights"):
        lines = str(saver.usage()).splitlines()
        assert lines[0].split()[-3:] == ["users", "age", "priority"]
        assert lines[1].split()[-4:] == ["1", "0.0", "s", "0"]
    held = memsaver.ArenaUsage(tag="a", device=0, policy="discard", state="paused", held_bytes=2048)
    silent = memsaver.DeviceUsage(1, mapped_bytes=10, known=False)
    text = str(memsaver.Usage([held], [silent]))
    assert "2.00 KiB could not be released yet" in text
    assert "device 1: memory query failed, 10 B used by these tags" in text


def test_reports_as_text(saver: Saver) -> None:
    assert memsaver.Reclaimed(unused_bytes=1, elastic_bytes=2, evicted_bytes=4).bytes == 7
    assert str(memsaver.Report()) == "nothing to do, 0 ms"
    done = memsaver.Report(released_bytes=64 << 20, held_bytes=1, elapsed_ns=1_500_000)
    assert str(done) == "released 64.00 MiB, held 1 B, 1.5 ms"
    exchanged = memsaver.Report(saved_bytes=1, restored_bytes=3, mapped_bytes=5 << 20, handed_bytes=4 << 20)
    assert str(exchanged) == "handed over 4.00 MiB, saved 1 B, mapped 5.00 MiB, restored 3 B, 0 ms"


def test_sizes() -> None:
    wanted = {0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 3 << 39: "1.50 TiB", 1 << 60: "1.00 EiB"}
    assert {count: format_bytes(count) for count in wanted} == wanted
