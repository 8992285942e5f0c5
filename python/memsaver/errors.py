"""What can go wrong: one class for each failure of the C interface, all of them an `Error`.

Each is also what Python would call it, so that `except MemoryError` or `except TimeoutError` works. The text is the
library's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsaver.reports import Report

__all__ = [
    "BackupDamaged",
    "DeviceLost",
    "DriverError",
    "Error",
    "HookFailed",
    "InternalError",
    "Misuse",
    "NotIdle",
    "OutOfHostMemory",
    "OutOfMemory",
    "SourceChanged",
    "Unavailable",
]


class Error(Exception):
    """What every failure of memsaver is."""

    #: The C interface's result; 0 where Python found the failure before the library was asked.
    result: int = 0
    #: What the driver answered, and its name for that ("CUDA_ERROR_INVALID_VALUE"); 0 and "" where no driver call failed.
    driver_code: int = 0
    driver_name: str = ""
    #: The tag concerned; "" where none is, or several are.
    tag: str = ""
    #: What a pause, resume or trim had done before it failed; None of other calls.
    report: Report | None = None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class OutOfMemory(Error, MemoryError):
    """The device has no room. Nothing changed; the same call succeeds once there is room."""

    #: What the call wanted to take of the device, in bytes.
    needed_bytes: int = 0
    #: What was free there after the failure, in bytes.
    free_bytes: int = 0


class OutOfHostMemory(Error, MemoryError):
    """The host has no room. The memory concerned is still active."""


class Misuse(Error, ValueError):
    """The program asked for something that cannot be meant. The text says what."""


class NotIdle(Error, TimeoutError):
    """The device was still at work when the time allowed ran out. Nothing changed."""


class DeviceLost(Error, RuntimeError):
    """The device or its context is lost. Backups stay readable, closing works."""


class DriverError(Error, RuntimeError):
    """A driver call failed in some other way."""


class Unavailable(Error, RuntimeError):
    """There is no usable device, driver or library, or the machine or the library lacks what was asked for."""


class BackupDamaged(Error, RuntimeError):
    """Kept bytes are not those that were saved (`verified=True`). The memory is still paused."""


class SourceChanged(Error, RuntimeError):
    """A file that bytes were loaded from is not what it was. What is paused stays so, until the file is back."""


class HookFailed(Error, RuntimeError):
    """A hook that is not Python's refused. What a hook in Python raises is raised as it is."""


class InternalError(Error, RuntimeError):
    """Something happened that the library does not know of."""


# By the C interface's result. What a later library adds is an Error.
BY_RESULT: dict[int, type[Error]] = {
    1: OutOfMemory,
    2: OutOfHostMemory,
    3: Misuse,
    4: NotIdle,
    5: DeviceLost,
    6: DriverError,
    7: Unavailable,
    8: BackupDamaged,
    9: HookFailed,
    10: InternalError,
    11: SourceChanged,
}
