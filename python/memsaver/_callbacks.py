"""Calls into C, and C's calls back: no exception crosses C, none is lost. Knows no saver.

The functions that C calls live as long as the process. Their context is a number; what it stands for may end at any time.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from memsaver import _abi
from memsaver._library import last_error, text
from memsaver.events import Event, EventKind, HookEvent, Moment, NoRoom
from memsaver.reports import Report, report_of


class Handle:
    """Of the C interface, for as long as this lives; goes into `call()` as it is. Knows no callback, so that what only keeps
    memory alive does not keep closures alive."""

    def __init__(self, end: Callable[..., object], *arguments: object) -> None:
        self._as_parameter_ = ctypes.c_void_p()
        self._finalizer = weakref.finalize(self, when_possible, end, self._as_parameter_, *arguments)
        self._finalizer.atexit = False  # the process's end gives everything back; others may still be at work
        self._inside: list[None] = []  # as long as the number of calls; a list, which needs no lock
        self._ended = False

    def end(self) -> None:
        """Gives it back before this dies, but not under a call of this thread or another: then the last one out does. It is
        null for calls from now on. Again: nothing."""
        self._as_parameter_ = ctypes.c_void_p()
        self._ended = True
        self._end_if_left()

    def enter(self) -> None:
        """A call begins, and reads the handle after this: so whoever has not read null is known to be inside."""
        self._inside.append(None)

    def leave(self) -> None:
        """The call that entered is over."""
        self._inside.pop()
        self._end_if_left()

    def _end_if_left(self) -> None:
        if self._ended and not self._inside:
            self._finalizer()  # once, whoever comes first

    @property
    def out(self) -> object:
        """Where C writes the handle."""
        return ctypes.byref(self._as_parameter_)


class Callback:
    """What a context stands for, while somebody holds this."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function
        self.context = next(_contexts)
        _callbacks[self.context] = self


class _Thread(threading.local):
    def __init__(self) -> None:
        self.calls: list[list[BaseException]] = []  # of each call that this thread is in, what its callbacks raised
        self.closed = 0  # while not 0, the library must not be called, or its last error would be lost


_contexts = itertools.count(1)
_callbacks: weakref.WeakValueDictionary[int, Callback] = weakref.WeakValueDictionary()
_thread = _Thread()
_waiting: collections.deque[Callable[[], object]] = collections.deque()


def when_possible(function: Callable[..., object], *arguments: object) -> None:
    """Calls something that gives back, now or after the call that this thread is in: for finalizers, which run anywhere,
    an event's callback included."""
    if _thread.closed:
        _waiting.append(functools.partial(function, *arguments))
    else:
        function(*arguments)


def call(function: Callable[..., int], *arguments: Any, report: _abi.Report | None = None) -> None:
    """Calls C. Raises what a callback raised on the way, or else what the library has to say."""
    raised: list[BaseException] = []
    error = None
    inside = [argument for argument in arguments if isinstance(argument, Handle)]
    for handle in inside:
        handle.enter()
    _thread.calls.append(raised)
    _thread.closed += 1
    try:
        code = function(*arguments)
        if code:
            error = last_error(code)
    finally:
        _thread.closed -= 1
        _thread.calls.pop()
        for handle in inside:
            handle.leave()
    while _waiting and not _thread.closed:
        try:
            waiting = _waiting.popleft()
        except IndexError:  # another thread was faster
            break
        waiting()
    if error is None:
        for lost in raised:  # a callback raised, and the library found another way
            _report(lost)
        return
    if report is not None:
        error.report = report_of(report)
    try:
        if not raised:
            raise error
        for lost in raised[1:]:
            _report(lost)
        if hasattr(raised[0], "add_note"):  # Python 3.11
            raised[0].add_note(f"memsaver: {error}")
        raise raised[0]
    finally:
        del error, raised  # an exception knows this frame: the saver would wait for the collector


def _raise(exception: BaseException) -> None:
    raise exception


#: Tells sys.unraisablehook, as ctypes does of whatever a callback raises.
_report = ctypes.CFUNCTYPE(None, ctypes.py_object)(_raise)


def _keep(exception: BaseException) -> None:
    """For the caller of the call that this thread is in. C code that is nobody's caller here has nobody to tell."""
    if _thread.calls:
        _thread.calls[-1].append(exception)
    else:
        _report(exception)


def _enter() -> int:
    """A hook and `on_no_room` may call the library. Answers what to leave with."""
    closed, _thread.closed = _thread.closed, 0
    return closed


def _on_hook(context: int, event: Any) -> int:
    callback = _callbacks.get(context)
    if callback is None:
        return 0
    closed = _enter()
    try:
        raw = event.contents
        tags = tuple(text(raw.tags[i]) for i in range(raw.tag_count))
        report = report_of(raw.report.contents) if raw.report else Report()
        callback.function(HookEvent(Moment(raw.moment), tags, report))
    except BaseException as exception:
        _keep(exception)
        return 1
    finally:
        _thread.closed = closed
    return 0


def _on_no_room(context: int, need: Any) -> int:
    callback = _callbacks.get(context)
    if callback is None:
        return 0
    closed = _enter()
    try:
        raw = need.contents
        told = NoRoom(raw.bytes, raw.free_bytes, raw.device, text(raw.tag), raw.missing_bytes)
        return int(bool(callback.function(told)))
    except BaseException as exception:
        _keep(exception)
        return 0
    finally:
        _thread.closed = closed


def _on_reclaim(context: int, wanted: int) -> int:
    callback = _callbacks.get(context)
    if callback is None:
        return 0
    closed = _enter()
    try:
        released: Any = callback.function(wanted)
        return max(0, int(released or 0))
    except BaseException as exception:
        _keep(exception)
        return 0
    finally:
        _thread.closed = closed


def _on_event(context: int, event: Any) -> None:
    """What it raises goes to sys.unraisablehook: whatever is told of goes on."""
    _thread.closed += 1
    try:
        callback = _callbacks.get(context)
        if callback is None:
            return
        raw = event.contents
        kind = EventKind(raw.kind) if raw.kind in EventKind.__members__.values() else raw.kind
        callback.function(Event(kind, raw.device, text(raw.tag), text(raw.text), raw.bytes_done, raw.bytes_total))
    finally:
        _thread.closed -= 1


on_hook = _abi.HookFunction(_on_hook)
on_no_room = _abi.NoRoomFunction(_on_no_room)
on_reclaim = _abi.ReclaimFunction(_on_reclaim)
on_event = _abi.EventFunction(_on_event)
