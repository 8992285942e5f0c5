"""The arguments of callbacks."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from memsaver import _abi
from memsaver.reports import Report


class Moment(enum.Enum):
    """When a hook runs."""

    BEFORE_PAUSE = _abi.BEFORE_PAUSE
    AFTER_PAUSE = _abi.AFTER_PAUSE
    BEFORE_RESUME = _abi.BEFORE_RESUME
    AFTER_RESUME = _abi.AFTER_RESUME


class EventKind(enum.IntEnum):
    """The kind of an event."""

    IGNORED = _abi.EVENT_IGNORED  #: a failure that no call could report
    RETRIED = _abi.EVENT_RETRIED  #: the device was out of memory; unused memory was released and the call retried
    TRIMMED = _abi.EVENT_TRIMMED  #: unused memory was released
    FELL_BACK = _abi.EVENT_FELL_BACK  #: a slower fallback is used instead of the requested method
    WARNED = _abi.EVENT_WARNED  #: the request was carried out, but may be a mistake
    BEGAN = _abi.EVENT_BEGAN  #: a pause, resume, trim, save or restore began; `ENDED` always follows
    ENDED = _abi.EVENT_ENDED
    PROGRESS = _abi.EVENT_PROGRESS  #: `bytes_done` of `bytes_total` have been copied


@dataclass(frozen=True)
class Event:
    """A message from the library to the program."""

    kind: int  #: an EventKind; a plain number if the library is newer than this package
    device: int
    tag: str  #: "" if the event does not concern a single tag
    text: str
    bytes_done: int = 0
    bytes_total: int = 0


@dataclass(frozen=True)
class HookEvent:
    """The argument of a hook."""

    moment: Moment
    tags: tuple[str, ...]
    report: Report  #: what was done; all 0 in hooks that run before


@dataclass(frozen=True)
class NoRoom:
    """Describes a call that is out of device memory although unused memory was released first."""

    bytes: int  #: device memory that the call needs; 0 if the failed call did not request bytes
    free_bytes: int  #: free device memory at the time of the query, the margin included
    device: int
    tag: str  #: the tag that needs the memory; "" if there are several
    missing_bytes: int  #: device memory missing for the call and its margin; at least 1
