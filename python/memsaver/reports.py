"""Reports of operations, and memory usage: printable data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from memsaver._abi import text

_T = TypeVar("_T")


def format_bytes(count: int) -> str:
    """Formats a size like the library: "64.00 MiB"."""
    power = (max(1, count).bit_length() - 1) // 10
    return f"{count / 1024**power:.2f} {'KMGTPE'[power - 1]}iB" if power else f"{count} B"


@dataclass(frozen=True)
class Report:
    """What a pause, resume, exchange or trim did: sums over all tags, in physical bytes unless stated otherwise."""

    released_bytes: int = 0  #: released to the device, including previously held bytes
    saved_bytes: int = 0  #: copied to backups
    restored_bytes: int = 0  #: copied or filled from backups
    mapped_bytes: int = 0  #: taken from the device, or from a tag paused by the same exchange
    handed_bytes: int = 0  #: of the mapped bytes, those handed over from a paused tag without being released
    held_bytes: int = 0  #: could not be released yet; the next call retries
    elapsed_ns: int = 0  #: the whole call in nanoseconds, hooks excluded
    waited_ns: int = 0  #: waiting for devices before the operation, in nanoseconds: the maximum over all tags

    def __str__(self) -> str:
        words = ("handed over", "released", "saved", "mapped", "restored", "held")
        counts = {word: getattr(self, f"{word.split()[0]}_bytes") for word in words}
        parts = [f"{word} {format_bytes(count)}" for word, count in counts.items() if count]
        return ", ".join([*(parts or ["nothing to do"]), f"{self.elapsed_ns / 1e6:.3g} ms"])


@dataclass(frozen=True, kw_only=True)
class _Held:
    reserved_bytes: int = 0  #: addresses
    mapped_bytes: int = 0  #: physical memory owned, held bytes included
    held_bytes: int = 0  #: of these, memory that the driver refused to release so far, or that work may still touch
    used_bytes: int = 0  #: live blocks, as requested, paused or not
    paused_bytes: int = 0  #: addresses whose memory is paused
    backed_up_bytes: int = 0  #: held by policies, on the host or in files
    blocks: int = 0  #: live blocks
    peak_mapped_bytes: int = 0  #: peak of mapped bytes; for several arenas, the sum of their peaks
    pauses: int = 0  #: number of pauses since the arenas were made
    elastic_bytes: int = 0  #: of the used bytes, those committed in elastic ranges


@dataclass(frozen=True, kw_only=True)
class Totals(_Held):
    """The sums of some arenas' usage, in bytes."""

    arenas: int = 0  #: number of arenas summed up


@dataclass(frozen=True, kw_only=True)
class ArenaUsage(_Held):
    """One tag on one device, in bytes. Has the fields of `Totals`, and those of the tag."""

    tag: str
    device: int
    policy: str
    #: "active", "paused", "partly paused", "arriving", "empty", "plain" (disabled saver, or plain memory) or "closed".
    state: str
    users: int = 0  #: current uses that name the tag
    evictable: bool = False  #: whether uses of other tags and `reclaim()` may pause it while it is not in use
    priority: int = 0  #: tags of the lowest priority are paused first
    age_ns: int = 0  #: time since its last use began or ended; 0 if it was never in one


@dataclass(frozen=True)
class Residency:
    """Statistics of uses and `reclaim()` since the saver was created."""

    hits: int = 0  #: uses whose tags were all resident
    misses: int = 0  #: uses that had to resume a tag, or to wait for a resume
    waits: int = 0  #: uses that waited for other threads' uses, pauses or moves
    evictions: int = 0  #: tags that were paused for others
    brought_bytes: int = 0  #: physical memory that uses took from the device
    restored_bytes: int = 0  #: bytes of backups restored by uses
    evicted_bytes: int = 0  #: physical memory released by evictions
    saved_bytes: int = 0  #: copied to backups by evictions


@dataclass(frozen=True)
class Reclaimed:
    """The result of `Saver.reclaim()`, in bytes of physical memory."""

    wanted_bytes: int = 0
    unused_bytes: int = 0  #: unused memory released
    elastic_bytes: int = 0  #: released by `on_reclaim` callbacks of elastic ranges
    evicted_bytes: int = 0  #: released by pausing idle tags
    saved_bytes: int = 0  #: copied to backups by these pauses
    text: str = ""  #: one line that also says why it was not more, and who holds the rest

    @property
    def bytes(self) -> int:
        """The total bytes released."""
        return self.unused_bytes + self.elastic_bytes + self.evicted_bytes

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class DeviceUsage:
    """A whole device, in bytes, across all processes."""

    device: int
    total_bytes: int = 0
    used_bytes: int = 0  #: by all processes, as reported by the driver
    mapped_bytes: int = 0  #: by this saver
    unexplained_bytes: int = 0  #: the rest: contexts, other allocators, other processes
    known: bool = True  #: whether the driver reported it; otherwise all fields except `mapped_bytes` are 0


@dataclass(frozen=True)
class Usage:
    """Memory usage. `print(saver.usage())` prints a table; iterating yields the arenas' rows.

    In the table, *reserved* is address space, *mapped* is device memory now and *peak* its maximum so far, *used* is
    live blocks, and *backed up* is what the policy keeps on the host or in files.
    """

    arenas: list[ArenaUsage] = field(default_factory=list)
    devices: list[DeviceUsage] = field(default_factory=list)
    residency: Residency = field(default_factory=Residency)
    host_bytes: int = 0  #: host memory of policies: backups, rounded up, and buffers that bytes pass through

    def __iter__(self) -> Iterator[ArenaUsage]:
        return iter(self.arenas)

    def __len__(self) -> int:
        return len(self.arenas)

    def as_dict(self) -> dict[str, Any]:
        """Returns {"arenas": [{"tag": ..., ...}, ...], "devices": [...], "residency": {...}}, suitable for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Has the columns users, age and priority if some tag has been used or may be evicted."""
        residency = any(row.evictable for row in self.arenas)
        lines = [["tag", "device", "policy", "state", "reserved", "mapped", "peak", "used", "backed up"]]
        lines[0] += ["users", "age", "priority"] if residency else []
        for row in self.arenas:
            sizes = (row.reserved_bytes, row.mapped_bytes, row.peak_mapped_bytes, row.used_bytes, row.backed_up_bytes)
            lines.append([row.tag, str(row.device), row.policy, row.state, *map(format_bytes, sizes)])
            order = (f"{row.age_ns / 1e9:.1f} s", str(row.priority)) if row.evictable else ("-", "-")
            lines[-1] += [str(row.users), *order] if residency else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        told: list[str] = []
        for held, line in zip([0, *(row.held_bytes for row in self.arenas)], lines, strict=True):
            padded = ((cell.ljust if i in (0, 2, 3) else cell.rjust)(widths[i]) for i, cell in enumerate(line))
            told.append("  ".join(padded))
            if held:
                told.append(f"  of these, {format_bytes(held)} could not be released yet")
        for of in self.devices:
            used, total, mine, others = map(
                format_bytes, (of.used_bytes, of.total_bytes, of.mapped_bytes, of.unexplained_bytes)
            )
            known = f"{used} of {total} used, {mine} by these tags, {others} by others"
            told.append(f"device {of.device}: {known if of.known else f'memory query failed, {mine} used by these tags'}")
        if self.host_bytes:
            told.append(f"host: {format_bytes(self.host_bytes)} used by these tags")
        return "\n".join(told)


@dataclass(frozen=True)
class Info:
    """A saver's driver and device. Bytes are those of the whole device, across all processes."""

    on_gpu: bool  #: otherwise host memory
    device: int
    enabled: bool
    granularity: int  #: page granularity in bytes
    free_bytes: int
    total_bytes: int
    name: str


@dataclass(frozen=True)
class Member:
    """A member of a share, in bytes of device memory."""

    name: str
    process: int  #: its number, as it sees it itself: another one in other containers
    priority: int = 0
    floor: int = 0
    ceiling: int = 0
    held_bytes: int = 0
    lends: bool = False
    published_bytes: int = 0  #: of what it has published, and nobody has withdrawn
    waiting_bytes: int = 0  #: that it lacks, and waits for

    def __str__(self) -> str:
        said = f"{self.name or '(no name)'} (process {self.process}): {format_bytes(self.held_bytes)} held"
        said += f", priority {self.priority}"
        said += f", floor {format_bytes(self.floor)}" if self.floor else ""
        said += f", ceiling {format_bytes(self.ceiling)}" if self.ceiling else ""
        said += ", lends" if self.lends else ""
        said += f", {format_bytes(self.published_bytes)} published" if self.published_bytes else ""
        return said + (f", waits for {format_bytes(self.waiting_bytes)}" if self.waiting_bytes else "")


def filled(kind: type[_T], raw: Any, /, **others: Any) -> _T:
    """Returns a dataclass with the fields of a structure of the C interface, or of an object of its JSON; `others` are
    given, and what newer libraries add is ignored.
    """
    found = raw if isinstance(raw, dict) else {name: getattr(raw, name) for name, *_ in raw._fields_}
    for each in dataclasses.fields(cast("Any", kind)):
        if each.name in found and each.name not in others:
            value = found[each.name]
            others[each.name] = text(value) if isinstance(value, bytes) else value
    return kind(**others)


def usage_of(told: str) -> Usage:
    data = json.loads(told)
    arenas = [filled(ArenaUsage, row) for row in data["arenas"]]
    devices = [filled(DeviceUsage, row) for row in data["devices"]]
    return Usage(arenas, devices, filled(Residency, data["residency"]), data["host_bytes"])
