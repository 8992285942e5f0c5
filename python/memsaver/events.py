"""What callbacks are told."""

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
    """What an event tells of."""

    IGNORED = 0  #: a failure where nothing could be returned
    RETRIED = 1  #: the device had no room; unused memory was given back and the call tried again
    TRIMMED = 2  #: memory that nobody used was given back
    FELL_BACK = 3  #: something is done in a slower way than was asked for
    WARNED = 4  #: something was done as asked that may not have been meant
    BEGAN = 5  #: a pause, resume, trim, save or restore; `ENDED` follows, whatever happens
    ENDED = 6
    PROGRESS = 7  #: `bytes_done` of `bytes_total` have been copied


@dataclass(frozen=True)
class Event:
    """What the library tells besides what it returns."""

    kind: int  #: an EventKind; a number where the library is newer than this package
    device: int
    tag: str  #: "" where no single tag is concerned
    text: str
    bytes_done: int = 0
    bytes_total: int = 0


@dataclass(frozen=True)
class HookEvent:
    """What a hook is told."""

    moment: Moment
    tags: tuple[str, ...]
    report: Report  #: what was done; all 0 before


@dataclass(frozen=True)
class NoRoom:
    """A call found no room, though memory that nobody uses was given back first."""

    bytes: int  #: that the call wants to take of the device
    free_bytes: int  #: of the device, when it was asked
    device: int
    tag: str  #: whose memory it would be; "" where it is that of several
    missing_bytes: int  #: that the device lacks for the call, and its margin; at least 1
