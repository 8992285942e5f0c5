"""Hooks, events, and calls that are out of memory: no exception crosses C, and none is lost."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import MIB, fails

import memsaver
from memsaver import Event, EventKind, HookEvent, Moment, NoRoom, Saver, _abi, _callbacks
from memsaver._library import library


@contextlib.contextmanager
def unraisable() -> Iterator[list[BaseException | None]]:
    """Collects the calls of sys.unraisablehook."""
    told: list[BaseException | None] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda what: told.append(what.exc_value)
    try:
        yield told
    finally:
        sys.unraisablehook = before


def raising(exception: BaseException) -> Any:
    def function(_: object) -> None:
        raise exception

    return function


def test_hooks_run_around(saver: Saver) -> None:
    for tag in ("a", "b"):
        saver.allocate(MIB, tag)
    seen: list[HookEvent] = []
    hooks = [saver.add_hook(moment, seen.append) for moment in Moment]
    paused = saver.pause(["a", "b"])
    saver.resume()
    assert [event.moment for event in seen] == list(Moment)
    assert (seen[0].tags, seen[0].report) == (("a", "b"), memsaver.Report())
    assert seen[1].report.released_bytes == paused.released_bytes
    for hook in hooks * 2:
        hook.remove()
    with saver.add_hook(Moment.BEFORE_RESUME, seen.append):
        saver.pause()
    saver.resume()
    assert len(seen) == 4


@pytest.mark.parametrize("exception", [KeyError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_hooks_that_raise(saver: Saver, exception: BaseException) -> None:
    """One before refuses; of those after, the others still run, and the first exception is raised."""
    saver.allocate(MIB, "a")
    seen: list[HookEvent] = []
    for moment, others in ((Moment.BEFORE_PAUSE, 0), (Moment.AFTER_PAUSE, 1)):
        second = KeyError("second")
        hooks = [saver.add_hook(moment, each) for each in (raising(exception), raising(second), seen.append)]
        with unraisable() as told, pytest.raises(type(exception)) as raised:
            saver.pause("a")
        assert (raised.value, told, len(seen)) == (exception, [second] * others, others)
        assert saver.totals("a").paused_bytes == MIB * others
        for hook in hooks:
            hook.remove()
    if sys.version_info >= (3, 11):
        assert "memsaver: a hook that runs before a pause" in exception.__notes__[0]
    saver.close()
    fails(memsaver.Misuse, "closed", saver.add_hook, Moment.BEFORE_PAUSE, print)
    assert saver._hooks == {}


@pytest.mark.parametrize("moment", [Moment.BEFORE_PAUSE, Moment.AFTER_PAUSE])
def test_a_hook_that_ctrl_c_hits_as_it_begins(saver: Saver, moment: Moment) -> None:
    """It does not run, and the call says so."""
    saver.allocate(MIB, "a")
    interrupts = ctypes.cast(ctypes.CDLL(None)["raise"], _abi.HookFunction)
    native = ctypes.c_void_p()
    add = library().memsaver_add_hook
    assert add(saver._handle, moment.value, interrupts, int(signal.SIGINT), ctypes.byref(native)) == 0
    seen: list[HookEvent] = []
    for _ in range(8):  # what ctypes returns for it is undefined
        hook = saver.add_hook(moment, seen.append)
        with unraisable() as told, pytest.raises(memsaver.HookFailed, match="returned -1"):
            saver.pause("a")
        assert [type(each) for each in told] == [KeyboardInterrupt]
        assert seen == []
        hook.remove()
        assert saver.totals("a").paused_bytes == (0 if moment is Moment.BEFORE_PAUSE else MIB)
        saver.resume("a")
    library().memsaver_remove_hook(native)


def test_ctrl_c_during_a_call_leaves_nothing_behind(saver: Saver) -> None:
    """Not the block, the hook or the use that the call made."""
    pointer = saver.allocate(MIB, "a")
    arena = saver.arena("a")
    loaded = library()
    calls: dict[str, Callable[[], object]] = {
        "memsaver_allocate": lambda: saver.allocate(MIB, "a"),
        "memsaver_arena_allocate": lambda: arena.allocate(MIB),
        "memsaver_add_answering_hook": lambda: saver.add_hook(Moment.BEFORE_PAUSE, raising(KeyError())),
        "memsaver_begin_use": lambda: saver.use("a"),
    }
    for name, use in calls.items():
        function = getattr(loaded, name)

        def interrupted(*arguments: Any, function: Any = function) -> int:
            assert function(*arguments) == 0
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(loaded, name, interrupted)
            fails(KeyboardInterrupt, "", use)
        gc.collect()
        assert saver.totals("a").blocks == 1
    assert saver.pause("a", timeout=0).released_bytes >= MIB
    saver.resume("a")
    saver.free(pointer)


def test_a_hook_may_use_another_saver(saver: Saver) -> None:
    saver.allocate(MIB, "a")
    with Saver("host", host_capacity=8 * MIB) as other:
        other.allocate(MIB, "x")
        other.add_hook(Moment.BEFORE_PAUSE, raising(KeyError("inner")))
        saver.add_hook(Moment.BEFORE_PAUSE, lambda _: fails(KeyError, "inner", other.pause))
        assert saver.pause().released_bytes >= MIB


def test_events() -> None:
    """One that raises stops nothing."""
    seen: list[Event] = []

    def on_event(event: Event) -> None:
        seen.append(event)
        raise KeyError("no")

    with Saver("host", host_capacity=64 * MIB, on_event=on_event) as saver, unraisable() as told:
        saver.arena("a", memsaver.HostBackup())
        saver.allocate(8 * MIB, "a")
        saver.allocate(1, "no policy")
        saver.pause()
        saver.resume()
        assert len(told) == len(seen) > 1
    assert [8 * MIB] * 2 in [[event.bytes_done, event.bytes_total] for event in seen if event.kind is EventKind.PROGRESS]
    assert [event.tag for event in seen if event.kind is EventKind.WARNED] == ["no policy"]


def test_no_room() -> None:
    asked: list[NoRoom] = []
    holder: list[Saver] = []

    def make_room(need: NoRoom) -> bool:
        asked.append(need)
        return holder[0].pause("cache").released_bytes > 0

    with Saver("host", host_capacity=64 * MIB, on_no_room=make_room) as saver:
        fails(IndexError, "out of range", saver.allocate, 100 * MIB, "a")  # it has no saver yet
        holder.append(saver)
        saver.allocate(40 * MIB, "cache")
        saver.allocate(40 * MIB, "weights")
        assert (asked[1].tag, asked[1].device) == ("weights", 0)
        assert asked[1].bytes >= 40 * MIB > asked[1].free_bytes
        assert asked[1].missing_bytes == asked[1].bytes - asked[1].free_bytes
        holder.clear()


def test_savers_go_with_their_last_reference() -> None:
    """Hooks, and exceptions of calls, do not keep them; a hook that refers to its saver does until garbage collection."""
    saver = Saver("host", host_capacity=8 * MIB)
    saver.allocate(1, "a")
    with contextlib.suppress(memsaver.Misuse):
        saver.pause("b")
    hook = saver.add_hook(Moment.BEFORE_PAUSE, lambda _: {}[0])  # type: ignore[index]
    with contextlib.suppress(KeyError):
        saver.pause("a")
    gone = weakref.ref(saver)
    gc.disable()
    try:
        del saver
        assert gone() is None
    finally:
        gc.enable()
    hook.remove()
    held: list[Any] = []
    saver = Saver("host", host_capacity=8 * MIB, on_event=held.append)
    held += [saver, saver.buffer(100, tag="a"), saver.add_hook(Moment.BEFORE_PAUSE, held.append)]
    saver.pause()
    gone = weakref.ref(saver)
    del saver, held
    gc.collect()
    assert gone() is None


def test_garbage_is_collected_in_an_event() -> None:
    """Objects destroyed in a callback are released after the call, because the library may hold a lock that releasing
    takes.
    """
    freed = threading.Event()

    def on_event(event: Event) -> None:
        garbage.clear()
        gc.collect()
        if saver_of:
            freed.set()

    garbage: list[Any] = []
    saver_of: list[Saver] = []
    with Saver("host", host_capacity=8 * MIB, on_event=on_event) as saver:
        saver.allocate(1, "a")
        garbage += [saver.buffer(1000, tag="a"), saver.arena("b"), Saver("host", host_capacity=MIB * 8)]
        saver_of.append(saver)
        saver.pause()
        saver.resume()
        assert freed.is_set()
        assert saver.totals("a").blocks == 1


def test_a_callback_that_c_still_has() -> None:
    """The Python saver may already be destroyed while C closes it; an exception goes to nobody's call."""
    event = _abi.Event(kind=99, tag=b"t", text=b"x")
    _callbacks.on_event(123456789, ctypes.pointer(event))
    answer = ctypes.c_int32(-1)
    _callbacks.on_hook(123456789, None, ctypes.pointer(answer))
    assert answer.value == 0
    assert _callbacks.on_no_room(123456789, None) == 0
    seen: list[Event] = []
    callback = _callbacks.Callback(seen.append)
    _callbacks.on_event(callback.context, ctypes.pointer(event))
    assert seen == [Event(99, 0, "t", "x")]
    callback.function = raising(failure := KeyError("no"))
    with unraisable() as told:
        _callbacks.on_hook(callback.context, ctypes.pointer(_abi.HookEvent(moment=0)), ctypes.pointer(answer))
    assert answer.value == 1
    assert told == [failure]


def test_a_hook_on_a_thread_of_the_library_goes_on_at_the_end(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the process waits for such a thread, which must not be parked as one that begins a call."""
    saver.allocate(MIB, "a")
    seen: list[int] = []
    saver.add_hook(Moment.BEFORE_PAUSE, lambda _: seen.append(saver.totals("a").paused_bytes))
    pause = library().memsaver_pause  # not through `call`
    thread = threading.Thread(target=pause, args=(saver._handle, None, 0, None, None), daemon=True)
    with monkeypatch.context() as patched:
        patched.setattr(_callbacks, "_ends_by", -1)
        thread.start()
        thread.join(60)
    assert not thread.is_alive()
    assert seen == [0]
