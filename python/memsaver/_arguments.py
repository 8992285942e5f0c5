"""Converts method arguments for the C interface: tags, streams, pointers, times, options."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from ctypes import c_char_p, c_void_p
from dataclasses import dataclass
from typing import Any, TypeAlias

from memsaver import _abi
from memsaver._library import checked, raw, structure
from memsaver.errors import Misuse
from memsaver.policies import Policy, policy_of


@dataclass(frozen=True)
class Under:
    """Every tag whose name begins with `prefix`, possibly none."""

    prefix: str


#: None: every tag. One name, several, or all under a prefix. An empty list means no tag.
Tags: TypeAlias = str | Under | Iterable[str] | None
#: An address (0: the device's default stream), or a stream object of PyTorch, CuPy or Numba, or with `__cuda_stream__`.
Stream: TypeAlias = Any
#: Seconds.
Time: TypeAlias = float | None
#: What an operation waits for. Events are addresses or objects, as streams are.
Streams: TypeAlias = Iterable[Stream] | None
Events: TypeAlias = Iterable[Any] | None


def names_of(tags: Tags) -> tuple[Any, int]:
    if tags is None:
        return None, 0
    if isinstance(tags, Under):
        return (c_char_p * 1)(raw(tags.prefix, "a prefix")), _abi.UNDER
    names = [raw(tag, "a tag") for tag in ([tags] if isinstance(tags, str) else tags)]
    return (c_char_p * max(1, len(names)))(*names), len(names)


def _native(what: str, handle: Any) -> int:
    """Returns the driver handle of a stream or event object of another library."""
    if isinstance(handle, int):
        return int(checked(what, c_void_p, handle))
    if what == "stream" and hasattr(handle, "__cuda_stream__"):
        return int(handle.__cuda_stream__()[1])
    for attribute in (f"cuda_{what}", "ptr", "handle"):
        if hasattr(handle, attribute):
            found = getattr(handle, attribute)
            return (found.value or 0) if isinstance(found, c_void_p) else int(found)
    raise TypeError(f"{what} must be an address or an object of PyTorch, CuPy or Numba, not {type(handle).__name__}")


stream_of, event_of = functools.partial(_native, "stream"), functools.partial(_native, "event")


def free_order_of(stream: Stream, idle: bool) -> int | None:
    """Returns the stream that frees a block; None if it is freed without a stream."""
    if stream is None:
        return None
    if idle:
        raise Misuse("pass either stream= or idle=True to free a block, not both")
    return stream_of(stream)


def nanoseconds_of(seconds: float | None) -> int:
    if seconds is None:
        return -1
    if not seconds >= 0:
        raise Misuse(f"a time must be 0 or more seconds, not {seconds}")
    if seconds > 2**62 / 1e9:  # about 146 years: for ever
        return 2**63 - 1
    return math.ceil(seconds * 1e9)


def device_options_of(device: int | str | None, peers: Sequence[int], **others: Any) -> _abi.Options:
    """The options that select a device, and others by their names in C."""
    if device is not None and device != "host" and not isinstance(device, int):
        raise Misuse(f'device must be the number of a GPU, "host" or None, not {device!r}')
    driver = _abi.DRIVER_DEFAULT if device is None else _abi.DRIVER_HOST if device == "host" else _abi.DRIVER_CUDA
    others |= {"device": device if isinstance(device, int) else 0, "peers": list(peers), "peer_count": len(peers)}
    return structure(_abi.Options, driver=driver, **others)


def waiting(kind: Any, streams: Streams, events: Events, idle: bool, timeout: float | None, **others: Any) -> Any:
    """Returns options of an operation that waits for the streams and events, if there are any; otherwise for nothing if
    `idle`, or all work of the devices.
    """
    if streams is not None or events is not None:
        after, passed = [*map(stream_of, streams or ())], [*map(event_of, events or ())]
        others |= {"order": _abi.AFTER_STREAMS, "streams": after, "stream_count": len(after)}
        others |= {"events": passed, "event_count": len(passed)}
    elif idle:
        others["order"] = _abi.ALREADY_IDLE
    return structure(kind, timeout_ns=nanoseconds_of(timeout), **others)


def pause_options_of(
    streams: Streams, events: Events, idle: bool, timeout: float | None = None, policy: Policy | None = None
) -> _abi.PauseOptions:
    if idle and (streams is not None or events is not None):
        raise Misuse("idle=True waits for nothing: do not pass streams or events with it")
    return waiting(_abi.PauseOptions, streams, events, idle, timeout, bytes=policy_of(policy))


def resume_options_of(policy: Policy | None, room_within: float | None) -> _abi.ResumeOptions:
    return structure(_abi.ResumeOptions, bytes=policy_of(policy), room_within_ns=nanoseconds_of(room_within))
