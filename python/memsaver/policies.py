"""Policies: what happens to the bytes of a paused tag. docs/options.md describes their options."""

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

    poison: int | None = None  #: fills resumed memory with this byte, to expose code that relies on discarded bytes


@dataclass(frozen=True)
class Zero:
    """Live blocks read as zero after a resume."""


@dataclass(frozen=True, kw_only=True)
class _Backup:
    refresh: Refresh = "every_pause"
    retain: bool = True  #: keep the storage after a resume, for the next pause; must be True with refresh="once"
    check: bool = False  #: with refresh="once": a pause is `Misuse` if bytes changed without `invalidate()`
    verified: bool = False  #: compare checksums before restoring; a mismatch is `BackupDamaged`
    compressed: bool = False  #: on the device, losslessly; on a GPU `Unavailable` without nvCOMP 6
    threads: int = 0  #: per copy, up to 1024; 0: the library's default
    ring_bytes: int = 0  #: maximum pinned memory for copies in flight, 1 MiB to 1 TiB; 0: the library's default


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

    retain: bool = True  #: keep host memory after a load or a resume, for the next one
    threads: int = 0  #: readers, up to 1024; 0: the library's default
    ring_bytes: int = 0  #: pinned memory for copies in flight, 1 MiB to 1 TiB; 0: the library's default


Policy: TypeAlias = Discard | Zero | HostBackup | FileBackup | FileSource
