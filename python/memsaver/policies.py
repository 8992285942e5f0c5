"""Policies: what happens to the bytes of a paused tag."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from memsaver import _abi
from memsaver._library import bytes_of, raw
from memsaver.errors import Misuse

__all__ = ["Discard", "FileBackup", "FileSource", "HostBackup", "Policy", "Zero"]

#: When bytes are saved: at every pause; or at the first pause, and again after `Saver.invalidate()`.
Refresh: TypeAlias = Literal["every_pause", "once"]
#: The kind of host memory: "pinned" is copied at the full speed of the link and cannot be swapped; "pageable" is
#: ordinary memory, copied through a bounded ring of pinned buffers.
Storage: TypeAlias = Literal["pinned", "pageable"]


@dataclass(frozen=True)
class Discard:
    """Bytes are undefined after a resume. The default policy."""

    #: Fill resumed memory with this byte (0 to 255) to expose code that relies on discarded bytes.
    poison: int | None = None


@dataclass(frozen=True)
class Zero:
    """Live blocks read as zero after a resume."""


@dataclass(frozen=True, kw_only=True)
class _Backup:
    refresh: Refresh = "every_pause"
    #: Keep the storage after a resume, which makes the next pause faster. With refresh="once" it must be True.
    retain: bool = True
    #: With refresh="once": a pause is `Misuse` if bytes changed without a call of `invalidate()`. Costs a copy.
    check: bool = False
    #: Compute checksums when saving and compare them before restoring; a mismatch is `BackupDamaged`.
    verified: bool = False
    #: Compress bytes on the device, losslessly, and keep them compressed. On a GPU `Unavailable` without
    #: nvCOMP 6.
    compressed: bool = False
    #: Threads per copy, up to 1024; 0: the library's default.
    threads: int = 0
    #: Maximum pinned memory for copies in flight, 1 MiB to 1 TiB; 0: the library's default.
    ring_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class HostBackup(_Backup):
    """Bytes are kept in host memory."""

    storage: Storage = "pinned"


@dataclass(frozen=True)
class FileBackup(_Backup):
    """Bytes are kept in an unnamed file in `directory` that is deleted with the tag."""

    directory: str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Bytes filled by `Saver.load()` are read from their file again and never saved. All other bytes are kept in pinned
    host memory.
    """

    #: Keep host memory after a load or a resume, for the next one.
    retain: bool = True
    #: Reader threads, up to 1024; 0: the library's default.
    threads: int = 0
    #: Pinned memory for copies in flight, 1 MiB to 1 TiB; 0: the library's default.
    ring_bytes: int = 0


Policy: TypeAlias = Discard | Zero | HostBackup | FileBackup | FileSource

_REFRESH = {"every_pause": _abi.EVERY_PAUSE, "once": _abi.ONCE}
_STORAGE = {"pinned": _abi.PINNED, "pageable": _abi.PAGEABLE}


def one_of(value: str, choices: dict[str, int], what: str) -> int:
    if value not in choices:
        raise Misuse(f"{what} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return choices[value]


def policy_of(policy: Policy | None) -> Any:
    """Returns a pointer to a policy of the C interface; None for none."""
    return None if policy is None else ctypes.pointer(_to_c(policy))


def _to_c(policy: Policy) -> _abi.Policy:
    if isinstance(policy, Discard):
        poison = -1 if policy.poison is None else policy.poison.__index__()
        if policy.poison is not None and not 0 <= poison <= 255:
            raise Misuse(f"poison must be 0 to 255, not {poison}")
        return _abi.Policy(kind=_abi.DISCARD, poison=poison, retain=True)
    if isinstance(policy, Zero):
        return _abi.Policy(kind=_abi.ZERO, poison=-1, retain=True)
    if not isinstance(policy, HostBackup | FileBackup | FileSource):
        raise TypeError(f"a policy must be Discard, Zero, HostBackup, FileBackup or FileSource, not {type(policy).__name__}")
    if not 0 <= policy.threads < 1 << 32:
        raise Misuse(f"threads cannot be {policy.threads}")
    ring_bytes = bytes_of(policy.ring_bytes, "ring_bytes")
    if isinstance(policy, FileSource):
        return _abi.Policy(
            kind=_abi.FILE_SOURCE, poison=-1, retain=policy.retain, threads=policy.threads, ring_bytes=ring_bytes
        )
    to = _abi.Policy(
        kind=_abi.HOST_BACKUP,
        poison=-1,
        refresh=one_of(policy.refresh, _REFRESH, "refresh"),
        retain=policy.retain,
        check=policy.check,
        verified=policy.verified,
        compressed=policy.compressed,
        threads=policy.threads,
        ring_bytes=ring_bytes,
    )
    if isinstance(policy, HostBackup):
        to.storage = one_of(policy.storage, _STORAGE, "storage")
    else:
        to.kind, to.directory = _abi.FILE_BACKUP, raw(os.fsdecode(policy.directory), "a directory")
    return to
