"""What a saver's methods answer that lives on: bytes on their way, gates, uses, elastic memory. Knows no saver's methods."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_bool, c_char_p, c_size_t, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any

from memsaver import _abi, _callbacks
from memsaver._arguments import Stream, event_of, pause_options_of, pointer_of, stream_of
from memsaver._callbacks import Callback, Handle, call
from memsaver._library import bytes_of, library, text
from memsaver._memory import DType, View
from memsaver.errors import Misuse
from memsaver.reports import Report, report_of

if TYPE_CHECKING:
    from memsaver._saver import Arena, Saver

__all__ = ["Arrival", "Elastic", "Gate", "Use"]


class Arrival:
    """Bytes of tags that are on their way: back to memory by `Saver.resume_async()`, or to backups by `Saver.save()`.

    They move by themselves. A context manager, whose end is `wait()`; whoever drops it waits too, and what fails then goes to
    the saver's `on_event`. Any thread may call its methods.
    """

    def __init__(self, saver: Saver, handle: Handle) -> None:
        self.saver = saver
        self._handle = handle

    def before(self, stream: Stream, pointer: int | None = None, bytes: int | None = None) -> None:
        """Work that `stream` is given from now on waits for `bytes` at `pointer`; without these, for all bytes.

        Does not wait itself, but for bytes that copies do not reach directly (files, pageable memory). Raises `Misuse` for
        bytes that are not in live blocks of the tags, and for a stream that is being captured: that is what gates are for.
        """
        part = _part(pointer, bytes)
        if part is None:
            call(library().memsaver_arrival_before, self._handle, stream_of(stream))
        else:
            call(library().memsaver_arrival_before_range, self._handle, stream_of(stream), *part)

    def wait(self, pointer: int | None = None, bytes: int | None = None) -> None:
        """Waits until `bytes` at `pointer` have come; without these until all have, and runs the hooks after a resume.

        Raises, each time, what kept bytes from coming. The backup is whole then, and the next pause or resume goes on.
        """
        part = _part(pointer, bytes)
        if part is None:
            call(library().memsaver_arrival_wait, self._handle, None)
        else:
            call(library().memsaver_arrival_wait_range, self._handle, *part)

    def report(self) -> Report:
        """Waits for all bytes, and says what was done. Raises as `wait()`."""
        report = _abi.Report()
        call(library().memsaver_arrival_wait, self._handle, byref(report), report=report)
        return report_of(report)

    def done(self) -> bool:
        """Whether nothing is on its way any more, whatever came of it. Does not wait."""
        done = c_bool()
        call(library().memsaver_arrival_done, self._handle, byref(done))
        return done.value

    def __enter__(self) -> Arrival:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.wait()


def _part(pointer: int | None, bytes: int | None) -> tuple[int, int] | None:
    if pointer is None and bytes is None:
        return None
    if pointer is None or bytes is None:
        raise Misuse("a part is a pointer and how many bytes; all bytes are neither")
    return pointer_of(pointer), bytes_of(bytes, "a size")


class Gate:
    """Has work wait for some bytes whenever `Saver.resume_async()` has them on their way. Made by `Saver.gate()`.

    Keep it until graphs that were captured behind it are gone.
    """

    def __init__(self, saver: Saver, handle: Handle) -> None:
        self.saver = saver
        self._handle = handle

    def before(self, stream: Stream) -> None:
        """Work that `stream` is given from now on waits for the bytes. In a capture the wait becomes part of the graph:
        each launch waits for what is on its way then."""
        call(library().memsaver_gate_before, self._handle, stream_of(stream))


class Use:
    """Tags that are in use, and so are not paused: `with saver.use("model.a") as use:`. Made by `Saver.use()`.

    Ends with `end()`, the `with`, or the last reference to it, on any thread; what was submitted and not marked by `until()`
    has passed by then. A thread that holds one does not wait for other threads' uses.
    """

    def __init__(self, saver: Saver, handle: Handle) -> None:
        self.saver = saver
        self._handle = handle
        lost, count = ctypes.POINTER(c_char_p)(), c_size_t()
        call(library().memsaver_use_lost, handle, byref(lost), byref(count))
        #: Those of its tags whose bytes were dropped since they were last used, and have to be filled anew.
        self.lost: tuple[str, ...] = tuple(text(lost[i]) for i in range(count.value))

    def until(self, stream: Stream = None, *, event: Any = None) -> None:
        """The tags also stay until `stream` has passed what it was given so far, or `event`, which was recorded.

        Does not wait; may be called for several. Raises `Misuse` for a stream that is being captured, and after the end.
        """
        if (stream is None) == (event is None):
            raise Misuse("a use lasts until a stream or an event has passed: name one of the two")
        if event is None:
            call(library().memsaver_use_until, self._handle, stream_of(stream))
        else:
            call(library().memsaver_use_until_event, self._handle, event_of(event))

    def end(self) -> None:
        """Ends it now; while a method of it runs on another thread, with the end of that one. Again: nothing."""
        self._handle.end()

    def __enter__(self) -> Use:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()


class Elastic:
    """A range of addresses that never changes, with memory where and while it is wanted. Made by `Arena.elastic()`.

    Offsets and sizes are bytes from `data`. Each step that has memory is a block of its tag: paused, resumed and counted with
    it. Memory that is not committed must not be touched. Ends with `end()`, a `with`, or the last reference to it.
    """

    def __init__(self, arena: Arena, bytes: int, granularity: int, on_reclaim: Callable[[int], object] | None) -> None:
        self.arena = arena
        options = _abi.ElasticOptions(granularity=bytes_of(granularity, "granularity"))
        self._callback = None if on_reclaim is None else Callback(on_reclaim)  # for as long as this lives
        if self._callback is not None:
            options.on_reclaim, options.on_reclaim_context = _callbacks.on_reclaim, self._callback.context
        self._handle = Handle(_end_elastic)
        size = bytes_of(bytes, "a size")
        call(library().memsaver_make_elastic, arena._handle, size, byref(options), self._handle.out)
        info = self._info()
        #: The first address.
        self.data = info.data or 0
        #: Bytes of addresses.
        self.capacity = info.capacity
        #: Bytes of one step.
        self.granularity = info.granularity

    def _info(self) -> _abi.ElasticInfo:
        info = _abi.ElasticInfo()
        call(library().memsaver_get_elastic_info, self._handle, byref(info))
        return info

    @property
    def committed_bytes(self) -> int:
        """Bytes that have memory, paused or not."""
        return self._info().committed_bytes

    def commit(self, offset: int, bytes: int) -> None:
        """Memory for `bytes` at `offset`, rounded outward to whole steps; steps that have some keep it, and their bytes.

        All or nothing. Raises `Misuse` (beyond the range, any of it paused), and what `Saver.allocate()` raises.
        """
        call(library().memsaver_elastic_commit, self._handle, bytes_of(offset, "an offset"), bytes_of(bytes, "a size"))

    def release(
        self,
        offset: int,
        bytes: int,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = False,
    ) -> None:
        """Gives up the memory of `bytes` at `offset`, rounded inward to whole steps, paused or not. Does not wait.

        Pages go back once all work that the device was given so far has passed; or what `streams` were given and `events`;
        or, with idle=True, at once. Raises `Misuse` for steps without memory.
        """
        options = pause_options_of(streams, events, idle, None, None)
        sizes = bytes_of(offset, "an offset"), bytes_of(bytes, "a size")
        call(library().memsaver_elastic_release, self._handle, *sizes, byref(options))

    def resize(
        self,
        bytes: int,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = False,
    ) -> None:
        """Commits or releases at the end; 0 releases all.

        Where the step of byte `bytes - 1` lies behind the last one with memory, commits all from there up to it; else
        releases what lies behind it. What was released before the last step with memory stays so.
        """
        options = pause_options_of(streams, events, idle, None, None)
        call(library().memsaver_elastic_resize, self._handle, bytes_of(bytes, "a size"), byref(options))

    def view(self, shape: int | Sequence[int], dtype: DType = "|u1", *, offset: int = 0) -> View:
        """Memory at `offset` as an array. Owns nothing and checks nothing."""
        return self.arena.saver.view(self.data + bytes_of(offset, "an offset"), shape, dtype)

    def end(self) -> None:
        """Gives all of it back, as `Saver.free()` does. Again: nothing.

        While a method of it runs, on another thread or as the caller of this callback, it goes back with the end of that
        one; other methods are `Misuse` at once.
        """
        self._handle.end()

    def __enter__(self) -> Elastic:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()


# Finalizers call these, and look the library's functions up when they do.


def _end_elastic(elastic: c_void_p) -> None:
    library().memsaver_end_elastic(elastic)


def end_arrival(arrival: c_void_p) -> None:
    library().memsaver_end_arrival(arrival)


def release_gate(gate: c_void_p) -> None:
    library().memsaver_release_gate(gate)


def end_use(use: c_void_p) -> None:
    library().memsaver_end_use(use)
