"""Calls into C, and callbacks from C. No exception crosses C, and none is lost. Independent of savers.

The functions that C calls live as long as the process. Their context is a number, and the object that it stands for may
be destroyed at any time.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from memsaver import _abi
from memsaver._abi import text
from memsaver._arguments import passed
from memsaver._library import last_error, library
from memsaver.events import Event, EventKind, HookEvent, Moment, NoRoom
from memsaver.reports import Report, filled

if TYPE_CHECKING:
    from typing_extensions import Self

_T = TypeVar("_T")


class Scope:
    """A context manager that ends with the method named by `_at_end`."""

    _at_end = "end"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        getattr(self, self._at_end)()


class Handle:
    """Owns a handle of the C interface, and can be an argument of `call()`. Refers to no callback: what only keeps memory
    alive does not keep closures alive.
    """

    def __init__(self, end: str) -> None:
        """`end`: the function that ends it, without `memsaver_`."""
        self._as_parameter_ = ctypes.c_void_p()
        self._finalizer = weakref.finalize(self, when_possible, _end, end, self._as_parameter_)
        self._finalizer.atexit = False  # the process's end releases everything; other threads may still be working
        self._inside: list[None] = []  # one element per call in progress; a list needs no lock
        self._ended = False

    @classmethod
    def made(cls, end: str, function: str, *arguments: Any) -> Handle:
        """Returns the handle that a C function writes to its last argument."""
        handle = cls(end)
        call(function, *arguments, handle.out)
        return handle

    def end(self) -> None:
        """Ends the handle, or lets the last call with it that is in progress. Later calls get null. Idempotent."""
        self._as_parameter_ = ctypes.c_void_p()
        self._ended = True
        self._end_if_left()

    def enter(self) -> None:
        """Marks the beginning of a call, before the handle is read."""
        self._inside.append(None)

    def leave(self) -> None:
        """Marks the end of a call."""
        self._inside.pop()
        self._end_if_left()

    def _end_if_left(self) -> None:
        if self._ended and not self._inside:
            self._finalizer()  # runs only once

    @property
    def out(self) -> object:
        """The pointer through which C writes the handle."""
        return ctypes.byref(self._as_parameter_)


def _end(name: str, handle: ctypes.c_void_p) -> None:
    if handle:
        getattr(library(), f"memsaver_{name}")(handle)


class Callback:
    """The function that a context number stands for, for the lifetime of this object."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function
        self.context = next(_contexts)
        _callbacks[self.context] = self


class _Thread(threading.local):
    def __init__(self) -> None:
        self.calls: list[list[BaseException]] = []  # exceptions of callbacks, for each call that this thread is in
        self.closed = 0  # while not 0, the library must not be called, because its last error would be lost
        self.inside = 0  # callbacks that this thread is in, also one of the library's own threads


_contexts = itertools.count(1)
_callbacks: weakref.WeakValueDictionary[int, Callback] = weakref.WeakValueDictionary()
_thread = _Thread()
_waiting: collections.deque[Callable[[], object]] = collections.deque()
_busy: set[int] = set()  # threads in a call
_ends_by = 0  # the thread that ends the process


def when_possible(function: Callable[..., object], *arguments: object) -> None:
    """Calls a function that releases something, now or, in an event callback, after the call that this thread is in."""
    if _thread.closed:
        _waiting.append(functools.partial(function, *arguments))
    else:
        function(*arguments)


def _begin(thread: int) -> None:
    """Marks the beginning of a thread's call. Does not return if another thread ends the process: a daemon thread waits
    here for the end, and not inside the library.
    """
    _busy.add(thread)
    if _ends_by not in (0, thread):
        _busy.discard(thread)
        threading.Event().wait()


def end_calls() -> None:
    """For the end of the process: lets daemon threads begin no more calls, and if there are callbacks waits a second for
    calls in progress. A callback while the interpreter ends would end the process with an error.
    """
    global _ends_by
    _ends_by = threading.get_ident()
    until = time.monotonic() + 1
    while _callbacks and _busy - {_ends_by} and time.monotonic() < until:
        time.sleep(0.001)


def _in_child() -> None:
    """A forked child has only the thread that forked."""
    global _ends_by
    _busy.intersection_update({threading.get_ident()})
    _ends_by = 0


os.register_at_fork(after_in_child=_in_child)


def call(name: str, *given: Any) -> Any:
    """Calls `memsaver_<name>`. If the last argument is missing, returns what C writes there. Raises the first exception of a
    callback during the call, else the library's error, and `Misuse` for what C cannot hold.
    """
    name = f"memsaver_{name}"
    made = None
    if len(given) < len(_abi.ARGUMENTS[name]):
        made = _abi.ARGUMENTS[name][-1][1]._type_()
        given += (ctypes.byref(made),)
    function = getattr(library(), name)
    raised: list[BaseException] = []
    error = None
    inside: list[Handle] = []
    closed, depth = _thread.closed, len(_thread.calls)
    thread = threading.get_ident()
    outermost = not depth and not _thread.inside  # one that the library waits for must go on
    try:  # a signal handler may raise at any line
        if outermost:
            _begin(thread)
        for argument in given[0].values() if name == "memsaver_create" else given:  # a saver's share is in its options
            if isinstance(argument, Handle):
                argument.enter()
                inside.append(argument)
        arguments = passed(name, given)
        _thread.calls.append(raised)
        _thread.closed = closed + 1
        code = function(*arguments)
        if code:
            error = last_error(code)
    finally:
        _thread.closed = closed
        del _thread.calls[depth:]
        for handle in inside:
            handle.leave()
        if outermost:
            _busy.discard(thread)
    if _waiting:
        with contextlib.suppress(IndexError):  # none is left, maybe because another thread took it
            while not _thread.closed:
                _waiting.popleft()()
    if error is None:
        for lost in raised:  # a callback raised, but the call succeeded
            _report(lost)
        return made
    if isinstance(made, _abi.Report):
        error.report = filled(Report, made)
    try:
        if not raised:
            raise error
        for lost in raised[1:]:
            _report(lost)
        if hasattr(raised[0], "add_note"):  # Python 3.11
            raised[0].add_note(f"memsaver: {error}")
        raise raised[0]
    finally:
        del error, raised  # an exception refers to this frame: the saver would stay alive until garbage collection


def told(kind: type[_T], name: str, *arguments: Any) -> _T:
    """Returns what a C function writes to its last argument: a number, a text, which it frees, or a dataclass."""
    made = call(name, *arguments)
    if isinstance(made, _abi.Sized):
        return filled(kind, made)
    if kind is not str:
        return kind(made.value)  # type: ignore[call-arg]
    try:
        return kind(text(ctypes.string_at(made.value)))  # type: ignore[call-arg]
    finally:
        library().memsaver_free_text(made)


def asked(name: str, *given: Any) -> bool:
    """Returns what a C function says, which says false after a failure."""
    return bool(getattr(library(), f"memsaver_{name}")(*passed(f"memsaver_{name}", given)))


def _raise(exception: BaseException) -> None:
    raise exception


#: Reports to sys.unraisablehook, as ctypes does for exceptions of a callback.
_report = ctypes.CFUNCTYPE(None, ctypes.py_object)(_raise)


def _keep(exception: BaseException) -> None:
    """Stores an exception for the caller of the current call. If this thread is in no call, reports it."""
    if _thread.calls:
        _thread.calls[-1].append(exception)
    else:
        _report(exception)


def _answer(context: int, use: Callable[[Callable[[Any], Any]], int], failed: int = 0) -> int:
    """Returns what `use` makes of a callback's function, which may call the library; 0 if the callback is gone, and
    `failed` after an exception.
    """
    callback = _callbacks.get(context)
    if callback is None:
        return 0
    closed, _thread.closed = _thread.closed, 0
    _thread.inside += 1
    try:
        return use(callback.function)
    except BaseException as exception:
        _keep(exception)
        return failed
    finally:
        _thread.closed = closed
        _thread.inside -= 1


def _on_hook(context: int, event: Any, answer: Any) -> None:
    """Without an answer the hook has failed: ctypes loses what a signal handler raises before the first line, and what
    a callback returns is undefined then.
    """

    def use(function: Callable[[Any], Any]) -> int:
        raw = event.contents
        tags = tuple(text(raw.tags[i]) for i in range(raw.tag_count))
        report = filled(Report, raw.report.contents) if raw.report else Report()
        function(HookEvent(Moment(raw.moment), tags, report))
        return 0

    answer[0] = _answer(context, use, failed=1)


def _on_no_room(context: int, need: Any) -> int:
    return _answer(context, lambda function: bool(function(filled(NoRoom, need.contents))))


def _on_reclaim(context: int, wanted: int) -> int:
    return _answer(context, lambda function: max(0, int(function(wanted) or 0)))


def _on_event(context: int, event: Any) -> None:
    """Calls `on_event`. Its exceptions go to sys.unraisablehook, and the reported operation continues."""
    _thread.closed += 1
    try:
        if (callback := _callbacks.get(context)) is None:
            return
        raw = event.contents
        kind = EventKind(raw.kind) if raw.kind in EventKind.__members__.values() else raw.kind
        callback.function(filled(Event, raw, kind=kind))
    finally:
        _thread.closed -= 1


on_hook = _abi.AnsweringHookFunction(_on_hook)
on_no_room = _abi.NoRoomFunction(_on_no_room)
on_reclaim = _abi.ReclaimFunction(_on_reclaim)
on_event = _abi.EventFunction(_on_event)
