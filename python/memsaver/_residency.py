"""Objects returned by a saver's methods: arrivals, gates, uses and elastic ranges. Independent of those methods."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import time
import weakref
from collections.abc import Callable
from ctypes import byref, c_char_p, c_size_t
from typing import TYPE_CHECKING, Any

from memsaver import _callbacks
from memsaver._abi import text
from memsaver._arguments import Events, Stream, Streams, checked, pausing
from memsaver._callbacks import Callback, Handle, Scope, call, told
from memsaver._memory import DType, Shape, View
from memsaver.errors import Error, Misuse
from memsaver.reports import Report

if TYPE_CHECKING:
    from memsaver._saver import Arena, Saver


class Arrival(Scope):
    """Copies of tags' bytes in flight: back to memory by `Saver.resume_async()`, or to backups by `Saver.save()`. A context
    manager, which ends with `wait()`, as does dropping the last reference, whose failures go to `on_event`.
    """

    _at_end = "wait"

    def __init__(self, saver: Saver, handle: Handle) -> None:
        self.saver = saver
        self._handle = handle
        if saver._callbacks or saver._hooks:
            _in_flight.add(self)

    def before(self, stream: Stream, pointer: int | None = None, bytes: int | None = None) -> None:
        """Makes work submitted to `stream` from now on wait for `bytes` at `pointer`; without these, for all bytes. Does not
        wait itself, except for bytes of files or pageable memory. `Misuse` for a stream that is being captured: use a gate.
        """
        suffix, part = _part(pointer, bytes)
        call("arrival_before" + suffix, self._handle, stream, *part)

    def wait(self, pointer: int | None = None, bytes: int | None = None) -> None:
        """Waits until `bytes` at `pointer` have arrived; without these, until all have, and then runs the hooks that
        run after a resume. If bytes could not be copied, every call raises that error; the backup is intact, and the next
        pause or resume continues.
        """
        suffix, part = _part(pointer, bytes)
        call("arrival_wait" + suffix, self._handle, *part)

    def report(self) -> Report:
        """Waits for all bytes and returns the report. Raises as `wait()`."""
        return told(Report, "arrival_wait", self._handle)

    def done(self) -> bool:
        """Returns whether no copies are in flight any more, successful or not. Does not wait."""
        return told(bool, "arrival_done", self._handle)


_in_flight: weakref.WeakSet[Arrival] = weakref.WeakSet()


@atexit.register
def _before_exit() -> None:
    """Ends what calls back: daemon threads in calls, and the library's threads, which tell `on_event` how far the copies
    are. One that does so while the interpreter ends would end the process with an error.
    """
    _callbacks.end_calls()
    for arrival in list(_in_flight):
        with contextlib.suppress(Error):  # a forked child, or a lost device
            while not arrival.done():
                time.sleep(0.001)


def _part(pointer: int | None, bytes: int | None) -> tuple[str, tuple[int, ...]]:
    if pointer is not None and bytes is not None:
        return "_range", (pointer, bytes)
    if pointer is not None or bytes is not None:
        raise Misuse("pass both pointer and bytes for a part, or neither for all bytes")
    return "", ()


class Gate:
    """Makes work wait for some bytes whenever `Saver.resume_async()` has them in flight. Kept until all graphs captured
    behind it are destroyed.
    """

    def __init__(self, saver: Saver, handle: Handle) -> None:
        self.saver = saver
        self._handle = handle

    def before(self, stream: Stream) -> None:
        """Makes work submitted to `stream` from now on wait for the bytes. In a capture the wait becomes part of the
        graph: each launch waits for the bytes in flight at that time.
        """
        call("gate_before", self._handle, stream)


class Use(Scope):
    """Tags in use, which are therefore not paused: `with saver.use("model.a") as use:`. Ends with `end()`, the `with` block,
    or the last reference to it, on any thread; submitted work that was not marked by `until()` must have completed.
    """

    def __init__(self, saver: Saver, handle: Handle) -> None:
        self.saver = saver
        self._handle = handle
        lost, count = ctypes.POINTER(c_char_p)(), c_size_t()
        call("use_lost", handle, byref(lost), byref(count))
        #: The tags of the use whose bytes were discarded since they were last used, and which must be filled again.
        self.lost: tuple[str, ...] = tuple(text(lost[i]) for i in range(count.value))

    def until(self, stream: Stream = None, *, event: Any = None) -> None:
        """Keeps the tags resident until `stream` has completed all work submitted to it before this call, or the recorded
        `event` has. Does not wait; may be called several times. `Misuse` for a stream that is being captured.
        """
        if (stream is None) == (event is None):
            raise Misuse("pass either a stream or an event to wait for")
        which, mark = ("until", stream) if event is None else ("until_event", event)
        call(f"use_{which}", self._handle, mark)

    def end(self) -> None:
        """Ends the use now, or with the end of a method that is running on another thread. Idempotent."""
        self._handle.end()


class Elastic(Scope):
    """A fixed range of addresses in which memory is committed and released in steps. Made by `Arena.elastic()`. Ends with
    `end()`, a `with` block, or the last reference to it.

    Offsets and sizes are bytes from `data`. Each step with memory is a block of its tag: it is paused, resumed and
    counted with it. Memory that is not committed must not be touched.
    """

    def __init__(self, arena: Arena, bytes: int, granularity: int, on_reclaim: Callable[[int], object] | None) -> None:
        self.arena = arena
        options: dict[str, Any] = {"granularity": granularity}
        self._callback = None if on_reclaim is None else Callback(on_reclaim)  # must live as long as this object
        if self._callback is not None:
            options |= {"on_reclaim": _callbacks.on_reclaim, "on_reclaim_context": self._callback.context}
        self._handle = Handle.made("end_elastic", "make_elastic", arena._handle, bytes, options)
        info = self._info()
        #: The first address, the bytes of addresses, and the bytes of one step.
        self.data, self.capacity, self.granularity = info.data or 0, info.capacity, info.granularity

    def _info(self) -> Any:
        return call("get_elastic_info", self._handle)

    @property
    def committed_bytes(self) -> int:
        """Bytes with memory, paused or not."""
        return int(self._info().committed_bytes)

    def commit(self, offset: int, bytes: int) -> None:
        """Commits memory for `bytes` at `offset`, rounded outward to whole steps, all or nothing. Steps that have memory
        keep it. Raises what `Saver.allocate()` raises, and `Misuse` if any of it is paused.
        """
        call("elastic_commit", self._handle, offset, bytes)

    def release(
        self, offset: int, bytes: int, *, streams: Streams = None, events: Events = None, idle: bool = False
    ) -> None:
        """Releases the memory of `bytes` at `offset`, rounded inward to whole steps, paused or not, once the work of
        `streams`, `events` and `idle` has completed, without waiting for it. `Misuse` for steps without memory.
        """
        call("elastic_release", self._handle, offset, bytes, pausing(streams, events, idle))

    def resize(self, bytes: int, *, streams: Streams = None, events: Events = None, idle: bool = False) -> None:
        """Commits everything up to the step of byte `bytes - 1` if that lies behind the last step with memory; otherwise
        releases everything behind it. Steps released before the last one with memory stay so.
        """
        call("elastic_resize", self._handle, bytes, pausing(streams, events, idle))

    def view(self, shape: Shape, dtype: DType = "|u1", *, offset: int = 0) -> View:
        """Returns memory at `offset` as an array. Owns nothing and checks nothing."""
        return self.arena.saver.view(self.data + checked("offset", c_size_t, offset), shape, dtype)

    def end(self) -> None:
        """Frees the whole range like `Saver.free()`, when methods that are running have ended. Idempotent."""
        self._handle.end()
