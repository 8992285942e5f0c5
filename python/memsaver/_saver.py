"""The saver, its arenas, regions and hooks: the functions of the C interface as methods."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_char_p, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Literal

from memsaver import _abi, _callbacks
from memsaver._arguments import Events, Export, NewTags, Stream, Streams, Tags, Time, Under
from memsaver._arguments import checked, covers, device_of, pausing, waiting
from memsaver._callbacks import Callback, Handle, Scope, asked, call, told
from memsaver._library import library
from memsaver._memory import Buffer, DType, Shape, View
from memsaver._residency import Arrival, Elastic, Gate, Use
from memsaver.errors import Error, Misuse
from memsaver.events import Event, HookEvent, Moment, NoRoom
from memsaver.policies import Policy
from memsaver.reports import Info, Reclaimed, Report, Totals, Usage, filled, usage_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from memsaver._share import Share


class _Blocks:
    """What a saver and an arena do alike: the functions `memsaver_allocate` and `memsaver_arena_allocate`, and so on."""

    _of = ""
    _handle: Handle

    def _allocate(self, stream: Stream, *arguments: Any) -> int:
        pointer = c_void_p()
        on, after = ("", ()) if stream is None else ("_on", (stream,))
        try:
            call(f"{self._of}allocate{on}", self._handle, *arguments, *after, ctypes.byref(pointer))
        except BaseException:
            if pointer:  # that of a signal handler: nobody gets the block
                getattr(library(), f"memsaver_{self._of}deallocate_idle")(self._handle, pointer)
            raise
        return pointer.value or 0

    def free(self, pointer: int, *, stream: Stream = None, idle: bool = False) -> None:
        """Frees a block, of any tag if a saver does, paused or active, on any thread. 0 is a no-op. As safe as cudaFree: not
        reused before the device's work so far has completed; with a stream, that stream's; with idle=True, at once.
        """
        if stream is not None and idle:
            raise Misuse("pass either stream= or idle=True to free a block, not both")
        how, after = ("_idle" if idle else "", ()) if stream is None else ("_on", (stream,))
        call(f"{self._of}deallocate{how}", self._handle, pointer, *after)


class Region:
    """Inside its `with` block, this thread's allocations without a tag use the region's; an inner one overrides an outer
    one. It must end on its thread, in reverse order: do not `yield` or `await` inside one. Can be entered again.
    """

    def __init__(self, saver: Saver, tag: str | Arena | None) -> None:
        """None: plain memory."""
        self._saver = saver
        self._tag = tag

    def __enter__(self) -> Region:
        saver = self._saver
        arena = saver.arena(self._tag) if isinstance(self._tag, str) else self._tag
        if arena is None:
            call("push_outside", saver._handle)
        else:
            call("push_arena", saver._handle, arena._handle)
        saver._open.regions.append((self, arena))
        return self

    def __exit__(self, *exception: object) -> None:
        regions = self._saver._open.regions
        if not regions or regions[-1][0] is not self:
            raise Misuse("a region must end on the thread that opened it, and before the regions around it")
        regions.pop()
        if not self._saver.closed:  # closing has ended its regions
            call("pop_region", self._saver._handle)


class _OpenRegions(threading.local):
    def __init__(self) -> None:
        self.regions: list[tuple[Region, Arena | None]] = []


class Hook(Scope):
    """Keeps a hook registered until `remove()` or the end of a `with` block, even without this object."""

    _at_end = "remove"

    def __init__(self, saver: Saver, context: int) -> None:
        self._saver = weakref.ref(saver)
        self._context = context

    def remove(self) -> None:
        """Removes the hook. A call in progress on another thread completes. Idempotent."""
        saver = self._saver()
        if saver is not None and (found := saver._hooks.pop(self._context, None)) is not None:
            found[1].end()


class Saver(_Blocks, Scope):
    """Allocates memory by tag, and pauses and resumes it by tag at unchanged addresses.

    Methods are thread-safe and release the GIL. Sizes are in bytes, times in seconds (None: no limit), pointers are ints
    and may point into a block where there is a size beside them. Failures raise the classes of `memsaver.errors` with the
    library's text. docs/guide.md and docs/models.md explain the operations, docs/options.md what can be chosen.

    Arguments of many methods: `streams` and `events` are the work to wait for; without them, all work of the devices, or
    with idle=True none, because no work touches the memory any more. `timeout` is for that, and for other operations on
    the same tags: then `NotIdle`. `policy` replaces that of the tags this once. `room_within` is how long to wait while
    the device is out of memory, before `OutOfMemory` (None: a resume does not, a use has no limit; math.inf: for ever).

    A context manager, which ends with `close()`. Otherwise memory is released with the last reference to the saver and
    to objects made by it, or with the process.
    """

    _at_end = "close"

    def __init__(
        self,
        device: int | Literal["host"] | None = None,
        *,
        share: Share | None = None,
        host_capacity: int = 0,
        host_granularity: int = 0,
        host_machine: str | None = None,
        enabled: bool = True,
        default_policy: Policy | None = None,
        new_tags: NewTags = "allowed",
        evict_for_allocations: bool = False,
        margin: int = 0,
        rdma: bool = False,
        export: Export = "none",
        peers: Sequence[int] = (),
        cuda_library: str | os.PathLike[str] | None = None,
        on_no_room: Callable[[NoRoom], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        """Creates a saver. docs/options.md describes the options of C++, `SaverOptions`, `CudaDriverOptions` and
        `HostDriverOptions`, whose names these have. Raises `Unavailable`.

        device: a GPU's number; "host" for host memory; None for GPU 0 if it is usable, else host memory.
        share: takes the memory as a member of this share, on the share's device, which must not be given again.
        host_capacity, host_granularity, host_machine: bytes, used only as they are touched (0: half of the physical memory,
            at most 8 GiB); bytes of a page (0: 2 MiB); a name that makes savers of this user, in any process, one device.
        default_policy: None: `Discard()`, with a warning event at the first pause.
        new_tags: "with_policy": only `arena` with a policy makes a tag; other uses of an unknown name are `Misuse`.
        on_no_room: called before `OutOfMemory` is raised, on the thread that needs the memory. May free, pause and drop.
            Returns whether it released anything: then the call is retried, up to 100 times. Its exceptions are raised to
            the caller, unless the call succeeds anyway.
        on_event: called on any thread. Must not call the saver. Its exceptions go to `sys.unraisablehook`.
        """
        self.closed = False
        self._open = _OpenRegions()
        # Functions that release cached memory of the tags for which the predicate holds, before these end.
        self._leavers: list[Callable[[Saver, Callable[[str], bool]], object]] = []
        self._hooks: dict[int, tuple[Callback, Handle]] = {}
        self._callbacks: list[Callback] = []
        where: dict[str, Any] = {"host_capacity": host_capacity, "host_granularity": host_granularity}
        where |= {"host_machine": host_machine, "rdma": rdma, "peers": peers, "cuda_library": cuda_library}
        if share is not None and (device is not None or any(where.values()) or export != "none"):
            raise Misuse("with a share, its device is the saver's: do not select one")
        tags = {"default_policy": default_policy, "new_tags": new_tags, "margin": margin}
        options = device_of(device, **where, export=export) | tags
        options |= {"enabled": enabled, "evict_for_allocations": evict_for_allocations}
        for name, function in (("on_no_room", on_no_room), ("on_event", on_event)):
            if function is not None:
                self._callbacks.append(Callback(function))
                options |= {name: getattr(_callbacks, name), f"{name}_context": self._callbacks[-1].context}
        self._share = share  # with what it lends
        self._handle = Handle.made("destroy", "create", options | {"share": share and share._handle})
        self._on_gpu: bool = self.info().on_gpu

    # --- The saver ---

    def close(self) -> None:
        """Waits for the device, then releases everything and ends open regions. Afterwards every use is `Misuse`. After a
        failure still tries the rest, then raises the first error; may be called again.
        """
        self._tell_leavers(lambda tag: True)
        call("close", self._handle)
        self.closed = True

    def info(self) -> Info:
        """Returns the saver's driver and device."""
        found = call("get_info", self._handle)
        return filled(Info, found, on_gpu=found.driver == _abi.DRIVER_CUDA)

    def set_margin(self, bytes: int) -> None:
        """Sets the bytes of each device's memory to leave free from now on, for tags without a margin of their own."""
        call("set_margin", self._handle, bytes)

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
        """Makes a tag if it does not exist, and returns its memory on a device. Arguments, `ArenaOptions` in
        docs/options.md, must match those of an existing tag. policy, margin, device: None or 0: the saver's.
        """
        where: dict[str, Any] = {"device": device, "capacity": capacity, "reserve": reserve}
        options = where | {"policy": policy, "margin": margin, "evictable": evictable, "priority": priority}
        return Arena(self, tag, Handle.made("release_arena", "get_arena", self._handle, tag, options))

    def drop(self, tags: Tags) -> None:
        """Waits for the device, then releases all that tags have. Their names become unknown, their arenas `Misuse`."""
        if tags is not None and not isinstance(tags, (str, Under)):
            tags = list(tags)
        self._tell_leavers(functools.partial(covers, tags))
        call("drop", self._handle, tags)

    def _tell_leavers(self, ends: Callable[[str], bool]) -> None:
        for leave in self._leavers:
            leave(self, ends)

    def set_capacity(self, tags: Tags, bytes: int) -> None:
        """Sets the maximum bytes that allocations may make the tags hold on each device. Mapped memory stays."""
        call("set_capacity", self._handle, tags, bytes)

    def set_retain(self, tags: Tags, retain: bool) -> None:
        """Sets `retain` of the tags' policies, from the next resume. `Misuse` for a named tag that keeps no bytes."""
        call("set_retain", self._handle, tags, retain)

    def region(self, tag: str | Arena) -> Region:
        """Returns a region of a tag, which is made if it does not exist, or of an arena of this saver."""
        if not isinstance(tag, Arena):
            checked("tag", c_char_p, tag)
        return Region(self, tag)

    def outside(self) -> Region:
        """Returns a region of plain memory, which is never paused."""
        return Region(self, None)

    # --- Blocks ---

    def allocate(self, bytes: int, tag: str | None = None, *, alignment: int = 0, stream: Stream = None) -> int:
        """Allocates `bytes` of undefined content from the tag, or from this thread's innermost region. Returns the address;
        0 for 0 bytes. alignment: a power of two; 0: 256.

        stream: None: usable on every stream at once. Otherwise for work on that stream: a block of about the same size
            that was freed with the stream is reused at once, and other streams must be ordered after it.
        """
        return self._allocate(stream, tag, bytes, alignment)

    def buffer(
        self, shape: Shape, dtype: DType = "|u1", tag: str | None = None, *, alignment: int = 0, stream: Stream = None
    ) -> Buffer:
        """Allocates a block like `allocate()`, and returns it as an array that owns it."""
        like = View(-1, shape, dtype, self._on_gpu, self.is_paused)
        # Through its arena: once the tag is dropped, the address may be that of another tag's block.
        regions = self._open.regions
        arena = self.arena(tag) if tag is not None and like.bytes else regions[-1][1] if tag is None and regions else None
        if arena is not None:
            return arena._buffer(like, alignment, stream)
        return Buffer(like, self.allocate(like.bytes, tag, alignment=alignment, stream=stream), self)

    def view(self, pointer: int, shape: Shape, dtype: DType = "|u1") -> View:
        """Returns memory at `pointer` as an array. Owns nothing, and does not check that it is memory of this saver."""
        return View(checked("pointer", c_void_p, pointer), shape, dtype, self._on_gpu, self.is_paused)

    def owns(self, pointer: int) -> bool:
        """Returns whether `pointer` points to or into a live block of this saver, paused or not, plain memory included."""
        return asked("owns", self._handle, pointer)

    _owns = owns

    def is_paused(self, pointer: int, bytes: int = 1) -> bool:
        """Returns whether any of `bytes` at `pointer` are paused or being paused. False for bytes that `resume_async()` is
        restoring, and for memory that is not live blocks.
        """
        return asked("is_paused", self._handle, pointer, bytes)

    def read_backup(self, pointer: int, bytes: int) -> bytearray:
        """Returns the backup of `bytes` at `pointer`, while the tag is paused and for as long as its policy keeps them.
        `Misuse`, with the reason, if there is none.
        """
        to = bytearray(checked("bytes", c_size_t, bytes))
        call("read_backup", self._handle, pointer, len(to), (ctypes.c_char * len(to)).from_buffer(to))
        return to

    def write_backup(self, pointer: int, data: ReadableBuffer) -> None:
        """Replaces the backup of paused memory at `pointer` by the bytes of `data`: any object with a contiguous buffer in
        host memory, which is copied first if it is read-only and not bytes. The next resume restores them; with
        `refresh="once"` they count as saved. If a file cannot be written, call again. With `enabled=False`, writes to the
        memory itself.
        """
        view = memoryview(data)
        if not view.c_contiguous:
            raise TypeError("new bytes must be C-contiguous")
        new: Any = data  # ctypes takes bytes, and buffers that it could write to
        if not isinstance(data, bytes):
            new = view.tobytes() if view.readonly else (ctypes.c_char * view.nbytes).from_buffer(view)
        call("write_backup", self._handle, pointer, new, view.nbytes)

    # --- Pause and resume ---

    def pause(
        self,
        tags: Tags = None,
        *,
        streams: Streams = None,
        events: Events = None,
        idle: bool = False,
        timeout: Time = None,
        policy: Policy | None = None,
    ) -> Report:
        """Releases the physical pages of tags to the device and keeps their addresses. The policies decide what happens to
        the bytes. Paused tags stay paused. The program must stop submitting work that touches the memory.

        Raises `NotIdle`, `OutOfHostMemory`, and exceptions of hooks. The error's `report` describes what was done before;
        calling again continues the operation.
        """
        return self._operate("pause", tags, pausing(streams, events, idle, timeout) | {"bytes": policy})

    def resume(self, tags: Tags = None, *, policy: Policy | None = None, room_within: Time = None) -> Report:
        """Maps new pages at the same addresses and restores the bytes that the policies kept, in the order of the list.
        On return every stream sees them. With a `policy` that keeps no bytes, the backup is then stale.

        Raises `OutOfMemory` if memory does not suffice for all tags, and nothing changes; what `pause()` raises; and
        `BackupDamaged`.
        """
        return self._operate("resume", tags, {"bytes": policy, "room_within": room_within})

    def exchange(
        self,
        out: Tags,
        in_: Tags,
        *,
        streams: Streams = None,
        events: Events = None,
        idle: bool = False,
        timeout: Time = None,
        policy_out: Policy | None = None,
        policy_in: Policy | None = None,
        room_within: Time = None,
    ) -> Report:
        """Pauses the tags of `out` (with `policy_out`) and resumes those of `in_` (with `policy_in`), in the pages of `out`
        and with both copies at once. Until it returns, no memory of either list may be touched. Raises like the pause, then
        the resume.

        If the device lacks memory for what `in_` needs beyond `out`, nothing changes. After any other failure `in_` is
        paused with its backup intact; memory of `out` that the error's `report` counts as handed over or released is paused
        and saved, the rest is active. Calling again continues.
        """
        pausing_out = pausing(streams, events, idle, timeout) | {"bytes": policy_out}
        options = {"pausing": pausing_out, "resuming": {"bytes": policy_in, "room_within": room_within}}
        return self._operate("exchange", out, in_, options)

    def resume_async(
        self,
        tags: Tags = None,
        *,
        first: Iterable[tuple[int, int]] = (),
        policy: Policy | None = None,
        room_within: Time = None,
    ) -> Arrival:
        """Resumes tags like `resume()`, but returns with all memory mapped and the copies in flight, those of the ranges
        (pointer, bytes) of `first` first. Until a block's bytes have arrived, only work on a stream passed to
        `Arrival.before()` may touch it; after `Arrival.wait()` any work may.
        """
        ranges = list(first)
        options: dict[str, Any] = {"resuming": {"bytes": policy, "room_within": room_within}}
        options |= {"first": [pointer for pointer, _ in ranges], "first_bytes": [bytes for _, bytes in ranges]}
        return Arrival(self, Handle.made("end_arrival", "resume_async", self._handle, tags, options))

    def save(
        self, tags: Tags = None, *, streams: Streams = None, events: Events = None, idle: bool = False, timeout: Time = None
    ) -> Arrival:
        """Saves the bytes that a pause would save, ahead of it and during the program's work, which must call
        `invalidate()` if it writes to the memory afterwards. For policies with refresh="once". Waits like `pause()`.
        """
        options = pausing(streams, events, idle, timeout)
        return Arrival(self, Handle.made("end_arrival", "save", self._handle, tags, options))

    def gate(self, pointer: int, bytes: int) -> Gate:
        """Creates a gate for `bytes` at `pointer`, in one live block, for streams and captured graphs."""
        return Gate(self, Handle.made("release_gate", "get_gate", self._handle, pointer, bytes))

    # --- More tags than memory ---

    def use(
        self,
        tags: Tags,
        *,
        streams: Streams = None,
        events: Events = None,
        idle: bool = True,
        timeout: Time = None,
        room_within: Time = None,
        await_bytes: bool = True,
    ) -> Use:
        """Resumes tags where necessary and keeps them resident until the use ends: `with saver.use(["model.a", "kv.a"])
        as use:`. A pause of the tags waits for the use.

        If the device lacks memory, idle tags are paused, lowest priority first and least recently used first among
        equals; only tags that a use has named before, or that are evictable. If that is not enough, the call waits for
        other threads' uses, and raises `OutOfMemory` at once if their end could not free enough, or if this thread holds a
        use. The earlier of `timeout` and `room_within` counts. `Misuse` in a hook, and in a capture unless all are resident.

        streams, events, idle: what evictions wait for, besides the work that uses marked.
        await_bytes: False: does not wait for bytes that `resume_async` is restoring; the use protects them from eviction.
        """
        options = waiting(streams, events, idle, timeout) | {"room_within": room_within, "await_bytes": await_bytes}
        return Use(self, Handle.made("end_use", "begin_use", self._handle, tags, options))

    def reclaim(
        self,
        bytes: int,
        *,
        streams: Streams = None,
        events: Events = None,
        idle: bool = True,
        timeout: Time = None,
        device: int | None = None,
    ) -> Reclaimed:
        """Releases at least `bytes` to a device (None: the saver's): first unused memory, then memory that `on_reclaim`
        callbacks of elastic ranges release, then idle tags, as `use` pauses them. Never waits for a use, and `timeout` is
        for each tag, which is then skipped. Releasing less is not an error: the result says why.
        """
        options = waiting(streams, events, idle, timeout) | {"device": device}
        got = _abi.Reclaimed()
        return filled(Reclaimed, got, text=told(str, "reclaim", self._handle, bytes, options, got))

    def set_evictable(self, tags: Tags, evictable: bool) -> None:
        """Sets `evictable` of `arena()`. Naming a tag in a use makes it evictable; False reverts that until the next."""
        call("set_evictable", self._handle, tags, evictable)

    def set_priority(self, tags: Tags, priority: int) -> None:
        """Sets the priority of tags; tags of the lowest priority are paused first."""
        call("set_priority", self._handle, tags, priority)

    # --- Around pauses ---

    def trim(
        self, tags: Tags = None, *, streams: Streams = None, events: Events = None, idle: bool = False, timeout: Time = None
    ) -> Report:
        """Releases pages that hold no live block. Waits like `pause()`: blocks freed before the call count as free."""
        return self._operate("trim", tags, pausing(streams, events, idle, timeout))

    def _operate(self, operation: str, *arguments: Any) -> Report:
        return told(Report, operation, self._handle, *arguments)

    def bytes_to_resume(self, tags: Tags = None) -> int:
        """Returns the physical bytes that resuming tags would take now."""
        return told(int, "bytes_to_resume", self._handle, tags)

    def prepare(self, tags: Tags = None) -> None:
        """Allocates, ahead of the first pause, what saving the live blocks needs. `Misuse` for a named tag that keeps no
        bytes.
        """
        call("prepare", self._handle, tags)

    def invalidate(self, tags: Tags = None) -> None:
        """Marks saved bytes as changed: the next pause saves them again. `Misuse` for a named tag that keeps no bytes."""
        call("invalidate", self._handle, tags)

    def invalidate_range(self, pointer: int, bytes: int) -> None:
        """Marks `bytes` at `pointer` as changed. With `FileSource` these no longer come from a file, and pauses save them.
        Other policies invalidate the whole tag.
        """
        call("invalidate_range", self._handle, pointer, bytes)

    def load(self, pointer: int, bytes: int, path: str | os.PathLike[str], offset: int = 0) -> None:
        """Fills `bytes` at `pointer`, in a tag with `FileSource`, from a file starting at `offset`, now and, by the same
        path, at every later resume. A pause does not save these bytes. Does not wait for work that still uses the old
        bytes. Raises `DriverError` if the file cannot be opened (then nothing has changed) or read, and `SourceChanged`.
        """
        call("load", self._handle, pointer, bytes, path, offset)

    def forget_backup(self, tags: Tags = None) -> None:
        """Discards the backups of paused memory and their storage. A resume then maps memory with undefined bytes."""
        call("forget_backup", self._handle, tags)

    # --- Hooks ---

    def add_hook(self, moment: Moment, function: Callable[[HookEvent], object]) -> Hook:
        """Runs `function` at a moment, on the thread that pauses or resumes, after hooks that were added before it. It may
        allocate and free, and pause or resume other tags than those it runs for, but not use, reclaim or close.

        Its exceptions are raised to the caller. Before the operation they refuse it: nothing is done, and later hooks do not
        run. After it, all hooks still run; the first exception is raised, others go to `sys.unraisablehook`. Hooks that run
        after do not run if the operation failed. A hook that Ctrl-C hits as it begins does not run: `HookFailed`.
        """
        if not isinstance(moment, Moment):
            raise TypeError(f"moment must be a Moment, not {moment!r}")
        callback = Callback(function)
        arguments = self._handle, moment.value, _callbacks.on_hook, callback.context
        self._hooks[callback.context] = callback, Handle.made("remove_hook", "add_answering_hook", *arguments)
        return Hook(self, callback.context)

    # --- Usage ---

    def usage(self) -> Usage:
        """Returns the memory usage: a row for each tag on each device, plain memory included, and one for each device."""
        return usage_of(told(str, "get_usage_json", self._handle))

    def totals(self, tags: Tags = None) -> Totals:
        """Returns the sums of some tags' usage on all their devices. Every tag (None) includes plain memory."""
        return told(Totals, "get_usage", self._handle, tags)


class Arena(_Blocks):
    """One tag's memory on one device; allocating through it needs no lookup. Made by `Saver.arena()`.

    Keeps the saver alive. Destroying it does not end the tag: blocks live until `Saver.drop()` or `Saver.close()`.
    """

    _of = "arena_"

    def __init__(self, saver: Saver, tag: str, handle: Handle) -> None:
        self.saver = saver
        self.tag = tag
        self._handle = handle

    def allocate(self, bytes: int, *, alignment: int = 0, stream: Stream = None) -> int:
        """Allocates from this arena; see `Saver.allocate()`."""
        return self._allocate(stream, bytes, alignment)

    def buffer(self, shape: Shape, dtype: DType = "|u1", *, alignment: int = 0, stream: Stream = None) -> Buffer:
        """Allocates an array from this arena; see `Saver.buffer()`."""
        return self._buffer(View(-1, shape, dtype, self.saver._on_gpu, self.saver.is_paused), alignment, stream)

    def _buffer(self, like: View, alignment: int, stream: Stream) -> Buffer:
        return Buffer(like, self.allocate(like.bytes, alignment=alignment, stream=stream), self)

    def _owns(self, pointer: int) -> bool:
        """Returns whether `pointer`, which was in a block of this arena, still is in a block, and not another tag's."""
        if self.saver.owns(pointer):
            with contextlib.suppress(Misuse):  # the tag was dropped
                self.usage()
                return True
        return False

    def elastic(self, bytes: int, *, granularity: int = 0, on_reclaim: Callable[[int], object] | None = None) -> Elastic:
        """Reserves `bytes` of addresses, without memory; the range may exceed the device's memory.

        granularity: bytes of one step, rounded up to whole pages; 0: 64 MiB.
        on_reclaim: called with a number of bytes when the device lacks memory that idle tags cannot supply, on the
            thread that needs it. Releases what it can spare and returns the bytes released. Exceptions: as `on_no_room`.
        """
        return Elastic(self, bytes, granularity, on_reclaim)

    def region(self) -> Region:
        """Returns a region of this arena; see `Saver.region()`."""
        return self.saver.region(self)

    def usage(self) -> Totals:
        """Returns this arena's usage, even after the saver was closed. `Misuse` if the tag was dropped."""
        return told(Totals, "get_arena_usage", self._handle)


def gpu_available(device: int = 0) -> bool:
    """Returns whether `Saver(device)` can be created for that GPU. Creates no context."""
    with contextlib.suppress(Error):
        call("gpu_available", device)
        return True
    return False


def gpu_count() -> int:
    """Returns the number of GPUs that the driver reports, usable or not; 0 if there is no driver."""
    return int(library().memsaver_gpu_count())


def version() -> str:
    """Returns the version of the loaded library, such as "0.3.0"."""
    return _abi.text(library().memsaver_version_text())
