"""Converts arguments for the C interface, by the names and types of its header."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import operator
import os
from collections.abc import Iterable
from ctypes import c_char_p, c_void_p
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from memsaver import _abi
from memsaver.errors import Misuse
from memsaver.policies import Policy, Refresh, Storage


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
# Texts, in the order of C's enumerators.
Export: TypeAlias = Literal["none", "file_descriptor", "fabric"]
NewTags: TypeAlias = Literal["allowed", "with_policy"]

_POLICY = ctypes.POINTER(_abi.Policy)
_CHOICES: dict[str, Any] = {"refresh": Refresh, "storage": Storage, "export": Export, "new_tags": NewTags}


def _raw(value: Any, what: str) -> bytes:
    """Encodes text for the library."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise Misuse(f"{what} {value!r} contains a null character")
    return value.encode("utf-8", "surrogateescape")


def covers(tags: Tags, name: str) -> bool:
    """Returns whether a list of tags has this name."""
    if isinstance(tags, Under):
        return name.startswith(tags.prefix)
    return tags is None or name == tags or (not isinstance(tags, str) and name in tags)


def _names_of(tags: Tags) -> tuple[Any, int]:
    if tags is None:
        return None, 0
    if isinstance(tags, Under):
        return (c_char_p * 1)(_raw(tags.prefix, "a prefix")), _abi.UNDER
    names = [_raw(tag, "a tag") for tag in ([tags] if isinstance(tags, str) else tags)]
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


def _nanoseconds_of(seconds: float) -> int:
    if not seconds >= 0:
        raise Misuse(f"a time must be 0 or more seconds, not {seconds}")
    if seconds > 2**62 / 1e9:  # about 146 years: for ever
        return 2**63 - 1
    return math.ceil(seconds * 1e9)


def waiting(streams: Streams, events: Events, idle: bool, timeout: Time = None) -> dict[str, Any]:
    """Returns the options of an operation that waits for the streams and events, if there are any; otherwise for nothing
    if `idle`, or all work of the devices.
    """
    if streams is None and events is None:
        return {"order": _abi.ALREADY_IDLE if idle else _abi.AFTER_DEVICE, "timeout": timeout}
    after = {"streams": [*(streams or ())], "events": [*(events or ())]}
    return {"order": _abi.AFTER_STREAMS, "timeout": timeout, **after}


def pausing(streams: Streams, events: Events, idle: bool, timeout: Time = None) -> dict[str, Any]:
    """Likewise, of a pause, where `idle` is not the default."""
    if idle and (streams is not None or events is not None):
        raise Misuse("idle=True waits for nothing: do not pass streams or events with it")
    return waiting(streams, events, idle, timeout)


def checked(name: str, kind: Any, value: Any) -> Any:
    """Returns a value for an argument or a field of this name and type. Raises `Misuse` for a number that C would cut."""
    limits = _abi.LIMITS.get(kind)
    if limits is not None and (kind is not c_void_p or hasattr(value, "__index__")):
        value = operator.index(value)
        if not limits[0] <= value <= limits[1]:
            raise Misuse(f"{name} cannot be {value}")
    elif kind is c_char_p and value is not None:
        value = _raw(os.fsdecode(value) if isinstance(value, os.PathLike) else value, name)
    elif isinstance(value, list):
        if name in ("streams", "events"):
            value = [_native(name[:-1], each) for each in value]
        value = (kind._type_ * len(value))(*(checked(name, kind._type_, each) for each in value))
    elif isinstance(value, dict):
        value = ctypes.pointer(structure(kind._type_, **value))
    elif kind is _POLICY and value is not None:
        value = ctypes.pointer(_policy_of(value))
    return value


def structure(kind: Any, /, **given: Any) -> Any:
    """Returns a structure of C with these fields, and the defaults for those that are omitted or None. Seconds become
    nanoseconds, texts of a Literal enumerators, dicts structures, and lists arrays with their counts.
    """
    kinds, made = dict(kind._fields_), kind()
    for name, value in given.items():
        if value is None:
            continue
        if hasattr(value, "_as_parameter_"):
            value = value._as_parameter_
            if not value:
                raise Misuse(f"the {name} was closed")
        field = next(each for each in (name, f"{name}_ns", f"{name}_handles") if each in kinds)
        if field.endswith("_ns"):
            value = _nanoseconds_of(value)
        elif name in _CHOICES:
            choices = get_args(_CHOICES[name])
            if value not in choices:
                raise Misuse(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
            value = choices.index(value)
        elif isinstance(value, list):
            for count in {f"{name}_count", f"{name[:-1]}_count", "count"} & kinds.keys():
                setattr(made, count, len(value))
        setattr(made, field, checked(name, kinds[field], value))
    return made


def _policy_of(policy: Any) -> Any:
    number, kind = next((each for each in enumerate(get_args(Policy)) if isinstance(policy, each[1])), (0, None))
    if kind is None:
        raise TypeError(f"a policy must be Discard, Zero, HostBackup, FileBackup or FileSource, not {type(policy).__name__}")
    return structure(
        _abi.Policy, kind=number, **{each.name: getattr(policy, each.name) for each in dataclasses.fields(kind)}
    )


def device_of(device: Any, peers: Iterable[int], **others: Any) -> dict[str, Any]:
    """Returns the options that select a device."""
    if device is not None and device != "host" and not isinstance(device, int):
        raise Misuse(f'device must be the number of a GPU, "host" or None, not {device!r}')
    driver = _abi.DRIVER_DEFAULT if device is None else _abi.DRIVER_HOST if device == "host" else _abi.DRIVER_CUDA
    return {"driver": driver, "device": device if isinstance(device, int) else 0, "peers": [*peers], **others}


def passed(function: str, given: Iterable[Any]) -> list[Any]:
    """Returns arguments for a function of C: a list of tags is two, and a dict becomes a structure."""
    arguments: list[Any] = []
    for (name, kind), value in zip(_abi.ARGUMENTS[function], given, strict=True):
        if hasattr(value, "_as_parameter_"):
            arguments.append(value)
        elif kind is _abi.TAGS:
            arguments += _names_of(value)
        elif name in ("stream", "event"):
            arguments.append(_native(name, value))
        elif isinstance(value, dict):
            arguments.append(structure(kind._type_, **value))
        else:
            arguments.append(checked(name, kind, value))
    return arguments
