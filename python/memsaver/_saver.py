"""The saver, its arenas, regions and hooks: the C interface's functions as methods."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from memsaver import _abi, _callbacks
from memsaver._arguments import (
    Stream,
    TagList,
    Under,
    free_order_of,
    names_of,
    nanoseconds_of,
    pause_options_of,
    pointer_of,
    policy_of,
    put_order,
    resume_options_of,
    stream_of,
)
from memsaver._residency import Arrival, Elastic, Gate, Use, end_arrival, end_use, release_gate
from memsaver._callbacks import Callback, Handle, call
from memsaver._library import bytes_of, library, raw, text
from memsaver._memory import Buffer, DType, View
from memsaver.errors import Error, Misuse
from memsaver.events import Event, HookEvent, Moment, NoRoom
from memsaver.policies import Policy
from memsaver.reports import Info, Reclaimed, Report, Totals, Usage, reclaimed_of, report_of, totals_of, usage_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Arena", "Hook", "Region", "Saver", "Stream", "TagList", "Under", "gpu_available", "gpu_count", "version"]


def _allocate(with_stream: Any, without: Any, stream: Stream, *arguments: Any) -> int:
    pointer = c_void_p()
    if stream is None:
        call(without, *arguments, byref(pointer))
    else:
        call(with_stream, *arguments, stream_of(stream), byref(pointer))
    return pointer.value or 0


def _deallocate(functions: tuple[Any, Any, Any], handle: Handle, pointer: int, stream: Stream, idle: bool) -> None:
    plain, on_stream, when_idle = functions
    address, after = pointer_of(pointer), free_order_of(stream, idle)
    if after is not None:
        call(on_stream, handle, address, after)
    else:
        call(when_idle if idle else plain, handle, address)


class Region:
    """What `Saver.region()` answers: `with` it, this thread's allocations without a tag go to the tag.

    Threads have regions of their own, inner ones override outer ones, and what was allocated lives on. A region ends on the
    thread on which it began, in the reverse order: do not `yield` or `await` inside one. Can be entered again.
    """

    def __init__(self, saver: Saver, push: Callable[[], None]) -> None:
        self._saver = saver
        self._push = push

    def __enter__(self) -> Region:
        self._push()
        self._saver._open.regions.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        regions = self._saver._open.regions
        if not regions or regions[-1] is not self:
            raise Misuse("a region ends on the thread on which it began, and before those around it")
        regions.pop()
        if not self._saver.closed:  # which ended its regions
            call(library().memsaver_pop_region, self._saver._handle)


class _OpenRegions(threading.local):
    def __init__(self) -> None:
        self.regions: list[Region] = []


class Hook:
    """Keeps a hook in force until `remove()`, or the end of a `with`; whoever drops it leaves the hook with the saver."""

    def __init__(self, saver: Saver, context: int) -> None:
        self._saver = weakref.ref(saver)
        self._context = context

    def remove(self) -> None:
        """Ends the hook. It does not run again; one that runs on another thread runs to its end. Again: nothing."""
        saver = self._saver()
        if saver is not None and (found := saver._hooks.pop(self._context, None)) is not None:
            library().memsaver_remove_hook(found)
            saver._callbacks.pop(self._context, None)

    def __enter__(self) -> Hook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


def _destroy(saver: c_void_p, hooks: dict[int, c_void_p]) -> None:
    while hooks:
        library().memsaver_remove_hook(hooks.popitem()[1])
    library().memsaver_destroy(saver)


def _release(arena: c_void_p) -> None:
    library().memsaver_release_arena(arena)


class Saver:
    """Hands out memory by tag; pauses and resumes it by tag, at unchanged addresses.

    Every method may be called from any thread, and lets other Python threads run meanwhile. Sizes are bytes, times are
    seconds, pointers are ints. Failures are the classes of `memsaver.errors`, with the library's text: `Misuse` where the
    arguments cannot be meant, `DeviceLost` and `DriverError` wherever the driver is asked.

    It is a context manager: its end is `close()`. Otherwise memory goes back with the last reference to the saver and what
    came from it, or with the process.
    """

    def __init__(
        self,
        device: int | Literal["host"] | None = None,
        *,
        host_capacity: int = 0,
        host_granularity: int = 0,
        enabled: bool = True,
        default_policy: Policy | None = None,
        new_tags: Literal["allowed", "with_policy"] = "allowed",
        margin: int = 0,
        pressure: int = 0,
        rdma: bool = False,
        export: Literal["none", "file_descriptor", "fabric"] = "none",
        peers: Sequence[int] = (),
        cuda_library: str | os.PathLike[str] | None = None,
        on_no_room: Callable[[NoRoom], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        """Makes a saver.

        device: a GPU's number; "host" for host memory; None for GPU 0 where it is usable, and host memory elsewhere.
        host_capacity: on host memory, bytes of the machine (0: half of the physical memory, at most 8 GiB), taken as used.
        host_granularity: on host memory, the unit of pages in bytes, a power of two (0: 2 MiB).
        enabled: False: plain allocations; pause and resume check their tags and do nothing.
        default_policy: what a tag gets that names none. None: `Discard()`, and a warning event at its first pause.
        new_tags: "with_policy": only `arena` with a policy makes a tag, and every other use of a name that none has is
            `Misuse`, for it may be mistyped. "allowed": every use makes one.
        margin: bytes of each device's memory that allocations and resumes leave free.
        pressure: bytes of each device's memory to keep free for others: whenever memory has been taken, what is missing is
            given back as `reclaim()` gives it, on the same thread, by nothing that would have to wait. Refuses nothing.
        rdma, export, peers: of GPU pages: that other devices reach them; in which form other processes can be handed them;
            the numbers of other GPUs that may use them.
        cuda_library: the driver library's name or path.
        on_no_room: called before `OutOfMemory` is raised, on the thread that wants the memory, with a `NoRoom`. It may
            free, pause and drop, and answers whether it did something, so that the call tries again. What it raises, the
            caller gets, unless the call succeeds all the same.
        on_event: called on any thread with each `Event`. It must not call the saver. What it raises goes to
            `sys.unraisablehook`.

        Raises `Unavailable`, and `Misuse` for options and a number that no device has.
        """
        self.closed = False
        self._open = _OpenRegions()
        # Who keeps memory of tags, and gives it back before they end: called with what says whether a tag is one of them.
        self._leavers: list[Callable[[Saver, Callable[[str], bool]], object]] = []
        self._hooks: dict[int, c_void_p] = {}
        self._callbacks: dict[int, Callback] = {}
        loaded = library()
        exports = {"none": 0, "file_descriptor": 1, "fabric": 2}
        if export not in exports:
            raise Misuse(f"export is one of {', '.join(map(repr, exports))}, not {export!r}")
        made_by = {"allowed": 0, "with_policy": 1}
        if new_tags not in made_by:
            raise Misuse(f"new_tags is one of {', '.join(map(repr, made_by))}, not {new_tags!r}")
        if device is not None and device != "host" and not isinstance(device, int):
            raise Misuse(f'a device is the number of a GPU, "host" or None, not {device!r}')
        number = device if isinstance(device, int) else 0
        options = _abi.Options(
            driver=0 if device is None else 2 if device == "host" else 1,
            device=_device(number),
            enabled=enabled,
            rdma=rdma,
            export_handles=exports[export],
            margin=bytes_of(margin, "margin"),
            pressure=bytes_of(pressure, "pressure"),
            new_tags=made_by[new_tags],
            host_capacity=bytes_of(host_capacity, "host_capacity"),
            host_granularity=bytes_of(host_granularity, "host_granularity"),
            peers=(c_int * len(peers))(*map(_device, peers)),
            peer_count=len(peers),
            cuda_library=None if cuda_library is None else os.fsencode(cuda_library),
        )
        if default_policy is not None:
            options.default_policy = ctypes.pointer(policy_of(default_policy))
        if on_no_room is not None:
            options.on_no_room, options.on_no_room_context = _callbacks.on_no_room, self._context_of(on_no_room)
        if on_event is not None:
            options.on_event, options.on_event_context = _callbacks.on_event, self._context_of(on_event)
        self._handle = Handle(_destroy, self._hooks)
        call(loaded.memsaver_create, byref(options), self._handle.out)
        self._on_gpu = self.info().on_gpu

    def _context_of(self, function: Callable[[Any], object]) -> int:
        callback = Callback(function)
        self._callbacks[callback.context] = callback
        return callback.context

    # --- The saver ---

    def close(self) -> None:
        """Gives everything back now, waiting for the device first: every tag, block and backup, and open regions.

        Afterwards every use is `Misuse`. Raises the first failure after everything has been tried; may be called again.
        """
        self._tell_leavers(lambda tag: True)
        call(library().memsaver_close, self._handle)
        self.closed = True

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def info(self) -> Info:
        """What the saver stands on."""
        found = _abi.Info()
        call(library().memsaver_get_info, self._handle, byref(found))
        return Info(
            on_gpu=found.driver == 1,
            device=found.device,
            enabled=found.enabled,
            granularity=found.granularity,
            free_bytes=found.free_bytes,
            total_bytes=found.total_bytes,
            name=text(found.name),
        )

    def set_margin(self, bytes: int) -> None:
        """Bytes of each device's memory to leave free, from now on; not for tags that have a margin of their own."""
        call(library().memsaver_set_margin, self._handle, bytes_of(bytes, "a margin"))

    # --- Tags ---

    def arena(
        self,
        tag: str,
        policy: Policy | None = None,
        *,
        capacity: int = 0,
        reserve: int = 0,
        margin: int = 0,
        device: int | None = None,
        evictable: bool = False,
        priority: int = 0,
    ) -> Arena:
        """Makes a tag if there is none, and answers its memory on a device. A tag that exists must have what is given.

        policy: what becomes of its bytes; None: the saver's default.
        capacity: the most bytes that allocations may make it hold; 0: what the device has. What is paused does not count.
        reserve: bytes of memory taken at once, in as few pieces as can be. May raise `OutOfMemory`.
        margin: bytes of the device's memory that its allocations and resumes leave free; 0: the saver's.
        device: the number of another GPU; None: the saver's device.
        evictable: whether `use()` of other tags and `reclaim()` may pause it while nobody uses it, though it was never named
            in a use. Outside of its uses no work may then touch it.
        priority: tags of the lowest are paused first, and of these the one that was used longest ago.
        """
        options = _abi.ArenaOptions(
            capacity=bytes_of(capacity, "capacity"),
            reserve=bytes_of(reserve, "reserve"),
            margin=bytes_of(margin, "margin"),
            device=_abi.ANY_DEVICE if device is None else _device(device),
            evictable=evictable,
            priority=_priority(priority),
        )
        if policy is not None:
            options.policy = ctypes.pointer(policy_of(policy))
        handle = Handle(_release)
        call(library().memsaver_get_arena, self._handle, raw(tag, "a tag"), byref(options), handle.out)
        return Arena(self, tag, handle)

    def drop(self, tags: TagList) -> None:
        """Ends tags: waits for the device, then gives back their blocks, pages, addresses and backups.

        The names are unknown again. Using their arenas is `Misuse`.
        """
        names, count = names_of(tags)
        if count == _abi.UNDER:
            self._tell_leavers(lambda tag: tag.startswith(text(names[0])))
        else:
            known = {text(names[i]) for i in range(count)}
            self._tell_leavers(lambda tag: names is None or tag in known)
        call(library().memsaver_drop, self._handle, names, count)

    def _tell_leavers(self, ends: Callable[[str], bool]) -> None:
        for leave in self._leavers:
            leave(self, ends)

    def set_capacity(self, tags: TagList, bytes: int) -> None:
        """The most bytes that allocations may make the tags hold on each device, from now on. What is mapped stays."""
        call(library().memsaver_set_capacity, self._handle, *names_of(tags), bytes_of(bytes, "a capacity"))

    def set_retain(self, tags: TagList, retain: bool) -> None:
        """Whether the tags' backups keep their host memory, or their files' room, after a resume, for the next pause; from
        the next resume on. `Misuse` for a tag that was named and whose policy keeps nothing."""
        call(library().memsaver_set_retain, self._handle, *names_of(tags), retain)

    def region(self, tag: str | Arena) -> Region:
        """`with saver.region("weights"):` makes this thread's allocations without a tag go there. The tag is made if there
        is none; an arena is one of this saver."""
        if isinstance(tag, Arena):
            arena = tag
            return Region(self, lambda: call(library().memsaver_push_arena, self._handle, arena._handle))
        name = raw(tag, "a tag")
        return Region(self, lambda: call(library().memsaver_push_region, self._handle, name))

    def outside(self) -> Region:
        """As `region()`, with plain memory, which is never paused."""
        return Region(self, lambda: call(library().memsaver_push_outside, self._handle))

    # --- Blocks ---

    def allocate(self, bytes: int, tag: str | None = None, *, alignment: int = 0, stream: Stream = None) -> int:
        """An address of `bytes` of memory, content undefined: of the tag, or of this thread's innermost region.

        alignment: a power of two; 0: 256.
        stream: None: the memory is good on every stream at once. Else it is for work of that stream: a block of about the
            size that this thread has freed with it is reused at once, without waiting, and other streams have to be
            ordered after it.

        0 bytes are 0. Raises `OutOfMemory`, `OutOfHostMemory`, and `Misuse`, as where there is no region.
        """
        name = None if tag is None else raw(tag, "a tag")
        sizes = bytes_of(bytes, "a size"), bytes_of(alignment, "an alignment")
        loaded = library()
        return _allocate(loaded.memsaver_allocate_on, loaded.memsaver_allocate, stream, self._handle, name, *sizes)

    def free(self, pointer: int, *, stream: Stream = None, idle: bool = False) -> None:
        """Gives a block back, paused or not, of whatever tag, from any thread. 0 does nothing.

        Without more it is as safe as cudaFree: the block is not handed out again before the device's work so far has passed
        it. Does not wait, but for plain memory. stream: it can be handed out again once that stream has passed here.
        idle=True: at once, for no work touches it any more.

        Raises `Misuse` for what is not a live block.
        """
        loaded = library()
        functions = loaded.memsaver_deallocate, loaded.memsaver_deallocate_on, loaded.memsaver_deallocate_idle
        _deallocate(functions, self._handle, pointer, stream, idle)

    def buffer(
        self,
        shape: int | Sequence[int],
        dtype: DType = "|u1",
        tag: str | None = None,
        *,
        alignment: int = 0,
        stream: Stream = None,
    ) -> Buffer:
        """A block as an array, which owns it; content undefined. The arguments and errors are those of `allocate()`."""
        like = View(-1, shape, dtype, self._on_gpu)
        pointer = self.allocate(like.bytes, tag, alignment=alignment, stream=stream)
        return Buffer(like, pointer, self.free, library().memsaver_deallocate, self._handle)

    def view(self, pointer: int, shape: int | Sequence[int], dtype: DType = "|u1") -> View:
        """Memory at `pointer` as an array; the default is of bytes. Owns nothing and checks nothing."""
        return View(pointer_of(pointer), shape, dtype, self._on_gpu)

    def owns(self, pointer: int) -> bool:
        """Whether a pointer points to or into a live block of this saver, paused or not, plain memory included."""
        return bool(library().memsaver_owns(self._handle, pointer_of(pointer)))

    def read_backup(self, pointer: int, bytes: int) -> bytearray:
        """The kept bytes at `pointer` (or inside its block), while the tag is paused and as long as its policy keeps them.

        `Misuse` says why there are none.
        """
        to = bytearray(bytes_of(bytes, "a size"))
        at = (ctypes.c_char * len(to)).from_buffer(to)
        call(library().memsaver_read_backup, self._handle, pointer_of(pointer), len(to), at)
        return to

    def write_backup(self, pointer: int, data: ReadableBuffer) -> None:
        """Other bytes for paused memory at `pointer` (or inside its block), changed where the policy keeps them.

        The next resume brings them; with `refresh="once"` they count as saved. Waits for an operation on the tag that is
        under way.

        data: bytes, or whatever has a contiguous buffer in host memory, as a NumPy array does: as many bytes as it has, of
            whatever type. A read-only buffer that is not bytes is copied first.

        Raises `Misuse` for memory that is active, and where nothing is kept. If a file cannot be written, some of the bytes
        may be the new ones, and the same call goes on. Of a saver with `enabled=False`, whose memory is never away, it writes
        to the memory itself.
        """
        view = memoryview(data)
        if not view.c_contiguous:
            raise TypeError("new bytes are of one piece, in C's order; this buffer is not contiguous")
        # ctypes takes the address of bytes, and of what it could write to
        if isinstance(data, bytes):
            new: Any = data
        else:
            new = view.tobytes() if view.readonly else (ctypes.c_char * view.nbytes).from_buffer(view)
        call(library().memsaver_write_backup, self._handle, pointer_of(pointer), new, view.nbytes)

    # --- Pause and resume ---

    def pause(
        self,
        tags: TagList = None,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = False,
        timeout: float | None = None,
        policy: Policy | None = None,
    ) -> Report:
        """Gives the physical pages of tags back to the device; addresses stay, bytes become what the policies say.

        Waits first for all work that the devices were given; or for what `streams` were given so far and for `events`; or,
        with idle=True, for nothing. The program stops submitting work that touches the memory. Paused tags stay so.

        timeout: seconds to wait for that, and for other operations on the same tags: else `NotIdle`. None: no end.
        policy: what becomes of the bytes this once.

        Raises `Misuse` (an unknown tag), `NotIdle`, `OutOfHostMemory`, and what a hook raises. The error's `report` says
        what was done before; calling again goes on from there.
        """
        options = pause_options_of(streams, events, idle, timeout, policy)
        return self._operate(library().memsaver_pause, options, tags)

    def resume(self, tags: TagList = None, *, policy: Policy | None = None, room_within: float | None = None) -> Report:
        """Fresh pages at the same addresses, and the bytes that the policies kept. On return every stream sees them.

        Without room for all tags it is `OutOfMemory`, and nothing changes. Bytes arrive in the order of the list.

        policy: what the bytes are this once: a policy that keeps nothing, as where new weights are coming anyway. What was
            kept is then stale.
        room_within: seconds to try again where there is no room, so that others can make some. None: not at all.

        Raises also what `pause()` raises, and `BackupDamaged`.
        """
        return self._operate(library().memsaver_resume, resume_options_of(policy, room_within), tags)

    def exchange(
        self,
        out: TagList,
        in_: TagList,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = False,
        timeout: float | None = None,
        policy_out: Policy | None = None,
        policy_in: Policy | None = None,
        room_within: float | None = None,
    ) -> Report:
        """Pauses the tags of `out` and resumes those of `in_`, so that one steps aside for the other.

        Pages pass from tag to tag, as whole handles, without being released, and bytes are saved and restored at the same
        time. Only what `in_` has more is taken from the device, only what it has less is given back. Waits, runs hooks and
        is refused as a pause of `out` followed by a resume of `in_`; what is paused of `out` and active of `in_` stays so.
        Until it returns, nothing of either may be touched; then every stream sees the bytes of `in_`.

        streams, events, idle, timeout, policy_out: for the tags that go, as those of `pause()`.
        policy_in, room_within: for the tags that come, as those of `resume()`.

        Raises what `resume()` raises, and `Misuse` for a tag in both lists. Without room for what `in_` has more it is
        `OutOfMemory` and nothing changes, unless others took what `out` gave back. After another failure `in_` is paused
        and its backup whole; of `out`, what the error's `report` says was handed on or released is paused and saved, the
        rest is active; calling again goes on from there.
        """
        options = _abi.ExchangeOptions()
        options.pausing = ctypes.pointer(pause_options_of(streams, events, idle, timeout, policy_out))
        options.resuming = ctypes.pointer(resume_options_of(policy_in, room_within))
        return self._operate(library().memsaver_exchange, options, out, in_)

    def resume_async(
        self,
        tags: TagList = None,
        *,
        first: Iterable[tuple[int, int]] = (),
        policy: Policy | None = None,
        room_within: float | None = None,
    ) -> Arrival:
        """As `resume()`, but does not wait for the bytes: all memory is mapped when it returns, and bytes are on their way.

        Until a block's bytes have come it must not be touched but by work of a stream that `Arrival.before()` was called
        with, or after `Arrival.wait()`.

        first: (pointer, bytes) of what is wanted first, in this order.
        policy, room_within: as those of `resume()`.

        Raises what `resume()` raises, and `Misuse` for bytes of `first` that are in no live block of the tags.
        """
        wanted = [(pointer_of(pointer), bytes_of(count, "a size")) for pointer, count in first]
        options = _abi.ResumeAsyncOptions(first_count=len(wanted))
        options.first = (c_void_p * len(wanted))(*(pointer for pointer, _ in wanted))
        options.first_bytes = (c_size_t * len(wanted))(*(count for _, count in wanted))
        options.resuming = ctypes.pointer(resume_options_of(policy, room_within))
        handle = Handle(end_arrival)
        call(library().memsaver_resume_async, self._handle, *names_of(tags), byref(options), handle.out)
        return Arrival(self, handle)

    def save(
        self,
        tags: TagList = None,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = False,
        timeout: float | None = None,
    ) -> Arrival:
        """Saves what a pause would save, ahead of it, for policies with refresh="once", while the program works.

        Waits here as `pause()` does, for the work that has written the bytes; then the memory stays active. What is written
        after that is for the program to tell: `invalidate()`.

        Raises `Misuse` for a tag that was named and whose policy saves at every pause, or keeps nothing.
        """
        options = pause_options_of(streams, events, idle, timeout, None)
        handle = Handle(end_arrival)
        call(library().memsaver_save, self._handle, *names_of(tags), byref(options), handle.out)
        return Arrival(self, handle)

    def gate(self, pointer: int, bytes: int) -> Gate:
        """A gate of `bytes` at `pointer` (or inside its block), for streams and captured graphs.

        `Misuse` for what is not in one live block.
        """
        handle = Handle(release_gate)
        size = bytes_of(bytes, "a size")
        call(library().memsaver_get_gate, self._handle, pointer_of(pointer), size, handle.out)
        return Gate(self, handle)

    # --- More tags than memory ---

    def use(
        self,
        tags: TagList,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = True,
        timeout: float | None = None,
        room_within: float | None = None,
        await_bytes: bool = True,
    ) -> Use:
        """Brings tags, and keeps them here until the use ends: `with saver.use(["model.a", "kv.a"]) as use:`.

        Room is made by pausing tags that nobody uses, of the lowest priority first and of these the one that was used longest
        ago: only tags that were once named in a use, or are evictable. Where these do not make enough room, it waits for
        other threads' uses to end. A pause of the tags meanwhile waits.

        streams, events: what evictions wait for besides what uses have marked. idle=False: all work of the devices.
        timeout: seconds to wait for pauses that are under way and for work that uses marked: else `NotIdle`.
        room_within: seconds to wait for room that other threads' uses hold: else `OutOfMemory`.
        await_bytes=False: a tag whose bytes `resume_async` is bringing counts as here. Where all tags are here or on their way,
        this does not wait for the bytes, and nobody evicts them meanwhile.

        Raises `OutOfMemory`, at once, where no end of other threads' uses could make enough room, and on a thread that holds
        a use; its text says who holds what. `Misuse` in a hook, and in a capture where not all is here already.
        """
        options = _abi.UseOptions(
            timeout_ns=nanoseconds_of(timeout), room_within_ns=nanoseconds_of(room_within), await_bytes=await_bytes
        )
        put_order(options, streams, events, idle)
        handle = Handle(end_use)
        call(library().memsaver_begin_use, self._handle, *names_of(tags), byref(options), handle.out)
        return Use(self, handle)

    def reclaim(
        self,
        bytes: int,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = True,
        timeout: float | None = None,
        device: int | None = None,
    ) -> Reclaimed:
        """Gives `bytes` or more back to a device: what nobody uses, then what owners of elastic memory release when they are
        asked, then idle tags, in the order in which a use would pause them. Never waits for a use.

        Less than that is no failure: the answer says what was got, and why not more.

        streams, events, idle: as those of `use()`.
        timeout: seconds to wait for work that uses marked; then the tag is passed by.
        device: the number of another GPU; None: the saver's device.
        """
        options = _abi.ReclaimOptions(timeout_ns=nanoseconds_of(timeout))
        options.device = _abi.ANY_DEVICE if device is None else _device(device)
        put_order(options, streams, events, idle)
        got, line = _abi.Reclaimed(), c_void_p()
        wanted = bytes_of(bytes, "a size")
        call(library().memsaver_reclaim, self._handle, wanted, byref(options), byref(got), byref(line))
        assert line.value is not None
        try:
            return reclaimed_of(got, text(ctypes.string_at(line.value)))
        finally:
            library().memsaver_free_text(line)

    def set_evictable(self, tags: TagList, evictable: bool) -> None:
        """Whether `use()` of other tags and `reclaim()` may pause these tags while nobody uses them. A tag that was named in
        a use is so from then on; False takes that back until the next one."""
        call(library().memsaver_set_evictable, self._handle, *names_of(tags), evictable)

    def set_priority(self, tags: TagList, priority: int) -> None:
        """Tags of the lowest priority are paused first."""
        call(library().memsaver_set_priority, self._handle, *names_of(tags), _priority(priority))

    # --- Around pauses ---

    def trim(
        self,
        tags: TagList = None,
        *,
        streams: Iterable[Stream] | None = None,
        events: Iterable[Any] | None = None,
        idle: bool = False,
        timeout: float | None = None,
    ) -> Report:
        """Gives back memory in which no block lives. Waits as `pause()` does, so that blocks freed before count."""
        return self._operate(library().memsaver_trim, pause_options_of(streams, events, idle, timeout, None), tags)

    def _operate(self, function: Any, options: Any, *lists: TagList) -> Report:
        report = _abi.Report()
        names = [part for tags in lists for part in names_of(tags)]
        call(function, self._handle, *names, byref(options), byref(report), report=report)
        return report_of(report)

    def bytes_to_resume(self, tags: TagList = None) -> int:
        """Physical bytes that resuming tags would take now."""
        count = c_size_t()
        call(library().memsaver_bytes_to_resume, self._handle, *names_of(tags), byref(count))
        return count.value

    def prepare(self, tags: TagList = None) -> None:
        """Takes, ahead of the first pause, the host memory or the disk's room that saving the live blocks would take.

        `Misuse` for a tag that was named and whose policy keeps nothing; `OutOfHostMemory`.
        """
        call(library().memsaver_prepare, self._handle, *names_of(tags))

    def invalidate(self, tags: TagList = None) -> None:
        """The program has changed bytes that a policy may have saved before: save them again at the next pause.

        `Misuse` for a tag that was named and whose policy keeps nothing.
        """
        call(library().memsaver_invalidate, self._handle, *names_of(tags))

    def invalidate_range(self, pointer: int, bytes: int) -> None:
        """As `invalidate()`, of `bytes` at `pointer` (or inside its block). With `FileSource` they have no home in a file from
        now on: pauses save them. Other policies take it for their tag."""
        call(library().memsaver_invalidate_range, self._handle, pointer_of(pointer), bytes_of(bytes, "a size"))

    def load(self, pointer: int, bytes: int, path: str | os.PathLike[str], offset: int = 0) -> None:
        """Fills `bytes` at `pointer` (or inside its block), in a tag with `FileSource`, with those of a file from `offset` on,
        now and at every later resume; a pause saves nothing of them. On return every stream sees them.

        Waits for no work that still uses the old bytes. The path is used again as it stands.

        Raises `Misuse` (paused, another policy, fewer bytes in the file), `DriverError` where the file cannot be opened or
        read, and `SourceChanged`. If the file could not be had at all, nothing has changed.
        """
        sizes = bytes_of(bytes, "a size"), os.fsencode(path), bytes_of(offset, "an offset")
        call(library().memsaver_load, self._handle, pointer_of(pointer), *sizes)

    def forget_backup(self, tags: TagList = None) -> None:
        """What is kept of paused memory goes, with its room: a resume brings the memory back with undefined bytes."""
        call(library().memsaver_forget_backup, self._handle, *names_of(tags))

    # --- Hooks ---

    def add_hook(self, moment: Moment, function: Callable[[HookEvent], object]) -> Hook:
        """Runs `function` at a moment, on the thread that pauses or resumes; hooks of one moment in the order of adding.

        It may allocate and free, but not pause, resume, exchange, trim, drop or close. What it raises, the caller of the
        pause or resume gets. Before, it refuses the operation: nothing happens, and later hooks do not run. After, the
        operation is done, and all other hooks still run; of several exceptions the caller gets the first, and
        `sys.unraisablehook` the others. Hooks that run after do not run when the operation failed.
        """
        if not isinstance(moment, Moment):
            raise TypeError(f"a hook runs at a Moment, not at {moment!r}")
        context = self._context_of(function)
        handle = c_void_p()
        try:
            add = library().memsaver_add_hook
            call(add, self._handle, moment.value, _callbacks.on_hook, context, byref(handle))
        except Error:
            del self._callbacks[context]
            raise
        self._hooks[context] = handle
        return Hook(self, context)

    # --- Usage ---

    def usage(self) -> Usage:
        """Who holds what: a row for each tag on each device, plain memory included, and one for each device."""
        json = c_void_p()
        call(library().memsaver_get_usage_json, self._handle, byref(json))
        assert json.value is not None
        try:
            return usage_of(text(ctypes.string_at(json.value)))
        finally:
            library().memsaver_free_text(json)

    def totals(self, tags: TagList = None) -> Totals:
        """The sums of some tags' usage on all their devices. Every tag (None) includes plain memory."""
        sums = _abi.Usage()
        call(library().memsaver_get_usage, self._handle, *names_of(tags), byref(sums))
        return totals_of(sums)


class Arena:
    """One tag's memory on one device; allocating through it looks nothing up. Made by `Saver.arena()`.

    Keeps the saver alive. Its end is not the tag's: blocks live on, until `Saver.drop()` or `Saver.close()`.
    """

    def __init__(self, saver: Saver, tag: str, handle: Handle) -> None:
        self.saver = saver
        self.tag = tag
        self._handle = handle

    def allocate(self, bytes: int, *, alignment: int = 0, stream: Stream = None) -> int:
        """As `Saver.allocate()`, from this arena."""
        sizes = bytes_of(bytes, "a size"), bytes_of(alignment, "an alignment")
        loaded = library()
        return _allocate(loaded.memsaver_arena_allocate_on, loaded.memsaver_arena_allocate, stream, self._handle, *sizes)

    def free(self, pointer: int, *, stream: Stream = None, idle: bool = False) -> None:
        """As `Saver.free()`, for blocks of this arena."""
        loaded = library()
        functions = (
            loaded.memsaver_arena_deallocate,
            loaded.memsaver_arena_deallocate_on,
            loaded.memsaver_arena_deallocate_idle,
        )
        _deallocate(functions, self._handle, pointer, stream, idle)

    def buffer(
        self, shape: int | Sequence[int], dtype: DType = "|u1", *, alignment: int = 0, stream: Stream = None
    ) -> Buffer:
        """As `Saver.buffer()`, from this arena."""
        like = View(-1, shape, dtype, self.saver._on_gpu)
        pointer = self.allocate(like.bytes, alignment=alignment, stream=stream)
        return Buffer(like, pointer, self.free, library().memsaver_arena_deallocate, self._handle)

    def elastic(
        self, bytes: int, *, granularity: int = 0, on_reclaim: Callable[[int], object] | None = None
    ) -> Elastic:
        """`bytes` of addresses, without memory so far; they may be more than the device has.

        granularity: bytes of one step, rounded up to the device's pages; 0: 64 MiB.
        on_reclaim: asked where the device lacks memory that idle tags do not make up for, on the thread that wants it: told
            how many bytes are wanted, it releases what it can spare and answers how many bytes that were. What it raises, the
            caller gets, unless the call succeeds all the same, as `reclaim()` does: then `sys.unraisablehook`.
        """
        return Elastic(self, bytes, granularity, on_reclaim)

    def region(self) -> Region:
        """As `Saver.region()`, with this arena."""
        return self.saver.region(self)

    def usage(self) -> Totals:
        """This arena's usage, also once the saver is closed. Of a tag that was dropped it is `Misuse`."""
        sums = _abi.Usage()
        call(library().memsaver_get_arena_usage, self._handle, byref(sums))
        return totals_of(sums)


def _device(number: int) -> int:
    if not -(2**31) <= number < 2**31:
        raise Misuse(f"no device has the number {number}")
    return number


def _priority(priority: int) -> int:
    if not -(2**31) <= priority < 2**31:
        raise Misuse(f"no tag has the priority {priority}")
    return priority


def gpu_available(device: int = 0) -> bool:
    """Whether `Saver(device)` can be made of that GPU. Makes no context."""
    with contextlib.suppress(Error):
        call(library().memsaver_gpu_available, _device(device))
        return True
    return False


def gpu_count() -> int:
    """How many GPUs the driver shows, usable or not; 0 where there is no driver."""
    return int(library().memsaver_gpu_count())


def version() -> str:
    """The version of the library that runs: "0.2.0"."""
    return text(library().memsaver_version_text())
