"""What operations did, and who holds what: data, printable."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from memsaver import _abi

__all__ = ["ArenaUsage", "DeviceUsage", "Info", "Reclaimed", "Report", "Residency", "Totals", "Usage", "format_bytes"]


def format_bytes(count: int) -> str:
    """As the library prints sizes: "64.00 MiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            return f"{value:.2f} {unit}" if unit != "B" else f"{count} B"
        value /= 1024
    return f"{value:.2f} EiB"


@dataclass(frozen=True)
class Report:
    """What a pause, resume, exchange or trim did. Sums over all tags; physical bytes where nothing else is said."""

    released_bytes: int = 0  #: given back to the device, those held so far included
    saved_bytes: int = 0  #: copied to backups
    restored_bytes: int = 0  #: copied, or filled, from backups
    mapped_bytes: int = 0  #: taken from the device, or from a tag that went
    handed_bytes: int = 0  #: of these, passed on by a tag that went, and never released
    held_bytes: int = 0  #: that could not be given back yet; the next call tries again
    elapsed_ns: int = 0  #: the whole call in nanoseconds, hooks excluded
    waited_ns: int = 0  #: for devices' work before anything was done, in nanoseconds: the longest of all tags

    def __str__(self) -> str:
        counts = {
            "handed over": self.handed_bytes,
            "released": self.released_bytes,
            "saved": self.saved_bytes,
            "mapped": self.mapped_bytes,
            "restored": self.restored_bytes,
            "held": self.held_bytes,
        }
        parts = [f"{name} {format_bytes(count)}" for name, count in counts.items() if count]
        return ", ".join([*(parts or ["nothing to do"]), f"{self.elapsed_ns / 1e6:.3g} ms"])


@dataclass(frozen=True)
class Totals:
    """The sums of some arenas' usage, in bytes."""

    arenas: int = 0  #: how many arenas these are the sums of
    reserved_bytes: int = 0  #: addresses
    mapped_bytes: int = 0  #: physical memory owned, held bytes included
    held_bytes: int = 0  #: of these, what the driver refused to take back so far
    used_bytes: int = 0  #: live blocks, as requested, paused or not
    paused_bytes: int = 0  #: addresses whose memory is away
    backed_up_bytes: int = 0  #: held by policies, on the host or in files
    blocks: int = 0  #: live blocks
    peak_mapped_bytes: int = 0  #: the most that was ever mapped; of several arenas, the sum of their peaks
    pauses: int = 0  #: how often memory went away, since the arenas were made
    resumes: int = 0  #: and how often it came back
    released_total_bytes: int = 0  #: physical memory that pauses gave back, summed up
    saved_total_bytes: int = 0  #: copied to backups
    restored_total_bytes: int = 0  #: copied, or filled, from them
    elastic_bytes: int = 0  #: of what is used now: committed in elastic ranges


@dataclass(frozen=True)
class ArenaUsage:
    """One tag on one device, in bytes. The fields are those of `Totals`, and whose they are."""

    tag: str
    device: int
    policy: str
    #: "active", "paused", "partly paused", "arriving", "empty", "plain" (switched off, or plain memory) or "closed".
    state: str
    reserved_bytes: int = 0
    mapped_bytes: int = 0
    held_bytes: int = 0
    used_bytes: int = 0
    paused_bytes: int = 0
    backed_up_bytes: int = 0
    blocks: int = 0
    peak_mapped_bytes: int = 0
    pauses: int = 0
    resumes: int = 0
    released_total_bytes: int = 0
    saved_total_bytes: int = 0
    restored_total_bytes: int = 0
    elastic_bytes: int = 0
    users: int = 0  #: living uses that name the tag
    evictable: bool = False  #: whether uses of other tags and `reclaim()` may pause it while nobody uses it
    priority: int = 0  #: those of the lowest are paused first
    age_ns: int = 0  #: since its last use began or ended; 0 if it was never in one


@dataclass(frozen=True)
class Residency:
    """What uses and `reclaim()` have done since the saver was made."""

    hits: int = 0  #: uses whose tags were all there
    misses: int = 0  #: uses that had to bring something, or to wait for who did
    waits: int = 0  #: uses that waited for other threads' uses, pauses or moves
    evictions: int = 0  #: tags that were paused for others
    brought_bytes: int = 0  #: physical memory that uses took from the device
    restored_bytes: int = 0  #: of backups, that uses brought back
    evicted_bytes: int = 0  #: physical memory that evictions gave back
    saved_bytes: int = 0  #: that evictions copied to backups
    most_passed: int = 0  #: the most later uses that one waiting use was ever passed by


@dataclass(frozen=True)
class Reclaimed:
    """What `Saver.reclaim()` got, in bytes of physical memory."""

    wanted_bytes: int = 0
    unused_bytes: int = 0  #: given back of what nobody used
    elastic_bytes: int = 0  #: given back by owners of elastic memory, whom it asked
    evicted_bytes: int = 0  #: given back by pausing idle tags
    saved_bytes: int = 0  #: that these pauses copied to backups
    text: str = ""  #: all of it in a line: also why not more, and who holds the rest

    @property
    def bytes(self) -> int:
        """What the device got back in all."""
        return self.unused_bytes + self.elastic_bytes + self.evicted_bytes

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class DeviceUsage:
    """A whole device, in bytes, whoever holds them."""

    device: int
    total_bytes: int = 0
    used_bytes: int = 0  #: by everybody, as the driver reports it
    mapped_bytes: int = 0  #: by this saver
    unexplained_bytes: int = 0  #: the rest: contexts, other allocators, other processes
    known: bool = True  #: whether the driver said so; else all but `mapped_bytes` is 0


@dataclass(frozen=True)
class Usage:
    """Who holds what. `print(saver.usage())` is a table; iterating gives the arenas' rows.

    In the table *reserved* are addresses, *mapped* is the device's memory now and *peak* the most of it so far, *used* are
    live blocks, and *backed up* is what the policy keeps on the host or in files.
    """

    arenas: list[ArenaUsage] = field(default_factory=list)
    devices: list[DeviceUsage] = field(default_factory=list)
    residency: Residency = field(default_factory=Residency)

    def __iter__(self) -> Iterator[ArenaUsage]:
        return iter(self.arenas)

    def __len__(self) -> int:
        return len(self.arenas)

    def as_dict(self) -> dict[str, Any]:
        """{"arenas": [{"tag": ..., ...}, ...], "devices": [...], "residency": {...}}, as JSON would have it."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [("tag", "device", "policy", "state", "reserved", "mapped", "peak", "used", "backed up")]
        for row in self.arenas:
            sizes = (row.reserved_bytes, row.mapped_bytes, row.peak_mapped_bytes, row.used_bytes, row.backed_up_bytes)
            tag, device, policy, state = row.tag, str(row.device), row.policy, row.state
            reserved, mapped, peak, used, backed_up = map(format_bytes, sizes)
            lines.append((tag, device, policy, state, reserved, mapped, peak, used, backed_up))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = []
        for number, line in enumerate(lines):
            words = zip(line, widths, strict=True)
            aligned = (word.ljust(width) if i in (0, 2, 3) else word.rjust(width) for i, (word, width) in enumerate(words))
            text.append("  ".join(aligned))
            if number and self.arenas[number - 1].held_bytes:
                text.append(f"  of these, {format_bytes(self.arenas[number - 1].held_bytes)} could not be given back yet")
        for row_of in self.devices:
            mine = f"{format_bytes(row_of.mapped_bytes)} by these tags"
            if not row_of.known:
                text.append(f"device {row_of.device}: does not answer, {mine}")
                continue
            used, total = format_bytes(row_of.used_bytes), format_bytes(row_of.total_bytes)
            others = format_bytes(row_of.unexplained_bytes)
            text.append(f"device {row_of.device}: {used} of {total} used, {mine}, {others} by others")
        return "\n".join(text)


@dataclass(frozen=True)
class Info:
    """What a saver stands on. Bytes are the whole device's, whoever holds them."""

    on_gpu: bool  #: else host memory
    device: int
    enabled: bool
    granularity: int  #: the unit of pages, in bytes
    free_bytes: int
    total_bytes: int
    name: str


def report_of(raw: _abi.Report) -> Report:
    return Report(**{each.name: getattr(raw, each.name) for each in dataclasses.fields(Report)})


def totals_of(raw: _abi.Usage) -> Totals:
    return Totals(**{each.name: getattr(raw, each.name) for each in dataclasses.fields(Totals)})


def _row(kind: type[Any], values: dict[str, Any]) -> Any:
    """A later library may tell more."""
    known = {each.name for each in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known})


def usage_of(text: str) -> Usage:
    data = json.loads(text)
    residency = _row(Residency, data.get("residency", {}))
    return Usage([_row(ArenaUsage, row) for row in data["arenas"]], [_row(DeviceUsage, row) for row in data["devices"]], residency)


def reclaimed_of(raw: _abi.Reclaimed, text: str) -> Reclaimed:
    return Reclaimed(raw.wanted_bytes, raw.unused_bytes, raw.elastic_bytes, raw.evicted_bytes, raw.saved_bytes, text)
