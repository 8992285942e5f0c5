"""What becomes of the bytes of a paused tag."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

from memsaver import _abi
from memsaver._library import bytes_of
from memsaver.errors import Misuse

__all__ = ["Discard", "FileBackup", "FileSource", "HostBackup", "Policy", "Zero"]

#: When bytes are saved: at every pause; or at the first, and again after `Saver.invalidate()`.
Refresh: TypeAlias = Literal["every_pause", "once"]
#: What host memory is: "pinned" is reached at the link's full speed and cannot be swapped; "pageable" is ordinary memory,
#: reached through a bounded ring of pinned buffers.
Storage: TypeAlias = Literal["pinned", "pageable"]


@dataclass(frozen=True)
class Discard:
    """Bytes are undefined after a resume. What a tag without a policy gets."""

    #: Every byte of resumed memory reads as this value (0 to 255), to show what was wrongly assumed to survive.
    poison: int | None = None


@dataclass(frozen=True)
class Zero:
    """Live blocks read as zero after a resume."""


@dataclass(frozen=True, kw_only=True)
class _Backup:
    refresh: Refresh = "every_pause"
    #: The room is kept after a resume for the next pause, which is then faster. With refresh="once" it is kept anyway.
    retain: bool = True
    #: With refresh="once": a pause is `Misuse` where bytes changed although nobody called `invalidate()`. Costs a copy.
    check: bool = False
    #: Checksums are taken on the way out, and compared before bytes come back: `BackupDamaged`.
    verified: bool = False
    #: Bytes are coded on the device, without loss, and kept coded. Where nvCOMP 6 (on a host, LZ4) is missing: `Unavailable`.
    compressed: bool = False
    #: Threads of a copy; 0: the library's default.
    threads: int = 0
    #: The most pinned memory for bytes on their way; 0: the library's default.
    ring_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class HostBackup(_Backup):
    """Bytes are kept in host memory."""

    storage: Storage = "pinned"


@dataclass(frozen=True)
class FileBackup(_Backup):
    """Bytes are kept in a file in `directory` that has no name and goes with the tag."""

    directory: str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """What `Saver.load()` filled comes from its file again, and is never saved; the rest is kept in pinned host memory."""

    #: Host memory is kept after a load or a resume, for the next one.
    retain: bool = True
    #: Readers; 0: the library's default.
    threads: int = 0
    #: Pinned memory for bytes on their way; 0: the library's default.
    ring_bytes: int = 0


Policy: TypeAlias = Discard | Zero | HostBackup | FileBackup | FileSource

_REFRESH = {"every_pause": 0, "once": 1}
_STORAGE = {"pinned": 0, "pageable": 1}


def _one_of(value: str, choices: dict[str, int], what: str) -> int:
    if value not in choices:
        raise Misuse(f"{what} is one of {', '.join(map(repr, choices))}, not {value!r}")
    return choices[value]


def to_c(policy: Policy | None) -> _abi.Policy | None:
    """The C interface's form of a policy."""
    if policy is None:
        return None
    if isinstance(policy, Discard):
        poison = -1 if policy.poison is None else policy.poison.__index__()
        if policy.poison is not None and not 0 <= poison <= 255:
            raise Misuse(f"poison is a byte, 0 to 255, not {poison}")
        return _abi.Policy(kind=0, poison=poison, retain=True)
    if isinstance(policy, Zero):
        return _abi.Policy(kind=1, poison=-1, retain=True)
    if not isinstance(policy, HostBackup | FileBackup | FileSource):
        raise TypeError(f"a policy is Discard, Zero, HostBackup, FileBackup or FileSource, not {type(policy).__name__}")
    if not 0 <= policy.threads < 1 << 32:
        raise Misuse(f"threads cannot be {policy.threads}")
    ring_bytes = bytes_of(policy.ring_bytes, "ring_bytes")
    if isinstance(policy, FileSource):
        return _abi.Policy(kind=4, poison=-1, retain=policy.retain, threads=policy.threads, ring_bytes=ring_bytes)
    to = _abi.Policy(
        kind=2,
        poison=-1,
        refresh=_one_of(policy.refresh, _REFRESH, "refresh"),
        retain=policy.retain,
        check=policy.check,
        verified=policy.verified,
        compressed=policy.compressed,
        threads=policy.threads,
        ring_bytes=ring_bytes,
    )
    if isinstance(policy, HostBackup):
        to.storage = _one_of(policy.storage, _STORAGE, "storage")
    else:
        to.kind, to.directory = 3, os.fsencode(policy.directory)
    return to
