"""Exceptions: one class for each failure of the C interface, all derived from `Error`.

Each class also derives from the closest built-in exception, so that `except MemoryError` or `except TimeoutError`
works. The text is the library's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsaver import _abi

if TYPE_CHECKING:
    from memsaver.reports import Report

# By result of the C interface. Unknown results of newer libraries become Error.
BY_RESULT: dict[int, type[Error]] = {}


class Error(Exception):
    """The base class of all memsaver exceptions."""

    result: int = 0  #: of the C interface; 0 if Python detected the error without calling the library
    driver_code: int = 0  #: 0 if no driver call failed
    driver_name: str = ""  #: "CUDA_ERROR_INVALID_VALUE"
    tag: str = ""  #: the tag concerned; "" if there is none, or several
    report: Report | None = None  #: what a pause, resume or trim had done before it failed; None for other calls

    def __init_subclass__(cls, of: int | None = None) -> None:
        """`of`: the result that the class stands for."""
        if of is not None:
            BY_RESULT[of] = cls

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class OutOfMemory(Error, MemoryError, of=_abi.OUT_OF_MEMORY):
    """The device is out of memory. Nothing changed; the same call succeeds once enough memory is free."""

    needed_bytes: int = 0  #: device memory that the call needed
    free_bytes: int = 0  #: device memory that was free after the failure


class OutOfHostMemory(Error, MemoryError, of=_abi.OUT_OF_HOST_MEMORY):
    """The host is out of memory. What was to be paused is still active, what was to be resumed is still paused."""


class OutOfAddresses(Error, MemoryError, of=_abi.OUT_OF_ADDRESSES):
    """The process is out of addresses, or at its limit of mappings (`ulimit -v`, `vm.max_map_count`). Nothing changed.

    Device memory may be free: pausing other tags does not help.
    """


class Misuse(Error, ValueError, of=_abi.MISUSE):
    """Invalid arguments, or a call in the wrong state. The text gives details."""


class NotIdle(Error, TimeoutError, of=_abi.NOT_IDLE):
    """The device was still busy, or a tag still in use, at the timeout. Nothing changed."""


class DeviceLost(Error, RuntimeError, of=_abi.DEVICE_LOST):
    """The device or its context is lost. Backups stay readable and closing works."""


class DriverError(Error, RuntimeError, of=_abi.DRIVER_ERROR):
    """A driver call failed for another reason."""


class Unavailable(Error, RuntimeError, of=_abi.UNAVAILABLE):
    """There is no usable device, driver or library, or the machine or the library lacks a requested feature."""


class BackupDamaged(Error, RuntimeError, of=_abi.BACKUP_DAMAGED):
    """A backup does not match its checksum (`verified=True`). The memory is still paused."""


class SourceChanged(Error, RuntimeError, of=_abi.SOURCE_CHANGED):
    """A file that bytes were loaded from has changed. Paused memory stays paused until the original file is back."""


class PublicationDamaged(Error, RuntimeError, of=_abi.PUBLICATION_DAMAGED):
    """Bytes of a publication are not those that were published: somebody wrote them."""


class HookFailed(Error, RuntimeError, of=_abi.HOOK_FAILED):
    """A hook not written in Python refused. Exceptions of Python hooks are raised unchanged."""


class InternalError(Error, RuntimeError, of=_abi.INTERNAL):
    """An error that the library does not know."""
