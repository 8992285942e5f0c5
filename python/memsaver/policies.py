"""Policies: what happens to the bytes of a paused tag."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

# Literals and policies are in the order of their enumerators in C.

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
