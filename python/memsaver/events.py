"""The arguments of callbacks."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from memsaver.reports import Report

__all__ = ["Event", "EventKind", "HookEvent", "Moment", "NoRoom"]


class Moment(enum.Enum):
    """When a hook runs."""

    BEFORE_PAUSE = 0
    AFTER_PAUSE = 1
    BEFORE_RESUME = 2
    AFTER_RESUME = 3


class EventKind(enum.IntEnum):
    """The kind of an event."""

    IGNORED = 0  #: a failure that no call could report
    RETRIED = 1  #: the device was out of memory; unused memory was released and the call retried
    TRIMMED = 2  #: unused memory was released
    FELL_BACK = 3  #: a slower fallback is used instead of the requested method
    WARNED = 4  #: the request was carried out, but may be a mistake
    BEGAN = 5  #: a pause, resume, trim, save or restore began; `ENDED` always follows
    ENDED = 6
    PROGRESS = 7  #: `bytes_done` of `bytes_total` have been copied


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
