"""What arrives in C of each argument. The functions refuse everything here; other tests show what they do."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import math
import os
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MIB, fails

import memsaver
from memsaver import Discard, FileBackup, FileSource, HostBackup, Misuse, Saver, Share, Under, Zero, _abi
from memsaver._callbacks import Handle
from memsaver._library import library

COUNTS = {
    "streams": "stream_count",
    "events": "event_count",
    "peers": "peer_count",
    "first": "first_count",
    "first_bytes": "first_count",
}
NOT_PASSED = Handle, type(ctypes.byref(ctypes.c_int()))  # handles, and pointers to results


def plain(value: Any, count: int = 1) -> Any:
    """Returns an argument as Python data: a structure as its fields, a pointer as `count` of what it points to."""
    if isinstance(value, ctypes.Array):
        return list(value)
    if isinstance(value, ctypes._Pointer):
        return None if not value else plain(value.contents) if isinstance(value.contents, _abi.Sized) else value[:count]
    if not isinstance(value, _abi.Sized):
        return bool(value) if callable(value) else value
    fields = {name: getattr(value, name) for name, *_ in value._fields_[1:]}
    count = fields.get("count", 1)
    return {name: plain(of, fields.get(COUNTS.get(name, ""), count)) for name, of in fields.items()}


class Everything:
    """An object of each kind, and what arrived in C first: the function's name, and its arguments by their names in
    the header, with the fields of structures but not of policies.
    """

    def __init__(self, saver: Saver, share: Share) -> None:
        self.saver, self.share = saver, share
        self.arena = saver.arena("a", FileSource())
        self.pointer = self.arena.allocate(MIB)
        self.elastic = self.arena.elastic(4 * MIB, granularity=MIB)
        self.arrival, self.gate, self.use = saver.resume_async([]), saver.gate(self.pointer, 1), saver.use([])
        self.arrived: dict[str, Any] = {}

    def refuse(self, function: str, *arguments: Any) -> int:
        if not self.arrived:
            self.arrived = {"function": function.removeprefix("memsaver_")}
            for name, value in zip(_abi.FUNCTIONS[function][1], arguments, strict=True):
                if not isinstance(value, NOT_PASSED):
                    self.add(name, plain(value))
        return next(result for result, kind in memsaver.errors.BY_RESULT.items() if kind is Misuse)

    def add(self, name: str, value: Any) -> None:
        """Adds an argument, or the fields of a structure. An exchange has two of some names: adds the one that is not 0."""
        if isinstance(value, dict) and "poison" not in value:
            for field, of in value.items():
                self.add(field, of)
        elif not name.endswith("_count") and not self.arrived.get(name):
            self.arrived[name] = bool(value) if name.endswith(("context", "share")) else value

    def arriving(self, use: Callable[..., object], *arguments: Any, **named: Any) -> dict[str, Any]:
        """Returns what arrives of a call."""
        self.arrived = {}
        with contextlib.suppress(Misuse):
            use(*arguments, **named)
        return self.arrived


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    where: dict[str, Any] = {"host_machine": f"py-{os.getpid()}-arguments", "host_capacity": 64 * MIB}
    with Share("host", folder=tmp_path_factory.mktemp("share"), **where) as share, Saver(share=share) as saver:
        yield Everything(saver, share)


@pytest.fixture
def on(everything: Everything, monkeypatch: pytest.MonkeyPatch) -> Everything:
    everything.arrived = {}
    for name, (result, _) in _abi.FUNCTIONS.items():
        if result in (ctypes.c_int, ctypes.c_bool) and name != "memsaver_get_last_error":
            monkeypatch.setattr(library(), name, functools.partial(everything.refuse, name))
    return everything


#: Methods whose parameters arrive one by one, with the function of C if it has another name. The others are in CALLS.
METHODS = {
    "saver": "set_margin arena=get_arena drop set_capacity set_retain allocate owns is_paused pause resume exchange "
    "resume_async save gate=get_gate use=begin_use reclaim set_evictable set_priority trim bytes_to_resume prepare "
    "invalidate invalidate_range load forget_backup totals=get_usage usage=get_usage_json info=get_info close",
    "arena": "allocate=arena_allocate elastic=make_elastic usage=get_arena_usage",
    "elastic": "commit=elastic_commit release=elastic_release resize=elastic_resize",
    "gate": "before=gate_before",
    "arrival": "done=arrival_done report=arrival_wait",
    "share": "members=get_members_json lend publish withdraw attach",
    "": "Saver=create Share=join_share",
}
ZERO: Any = plain(_abi.Policy(kind=_abi.ZERO, poison=-1, retain=True))
#: Values of parameters, and what arrives of them, where `example` knows no better.
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "tags": ("a", {"names": [b"a"], "count": 1}),
    "out": ("a", {"out_names": [b"a"]}),
    "in_": ("b", {"in_names": [b"b"]}),
    "policy": (Zero(), {"bytes": ZERO}),
    "saver.arena.policy": (Zero(), {"policy": ZERO}),
    "default_policy": (Zero(), {"default_policy": ZERO}),
    "policy_out": (Zero(), {"bytes": ZERO}),
    "policy_in": (Zero(), {"bytes": ZERO}),
    "streams": ([7, 8], {"streams": [7, 8], "order": _abi.AFTER_STREAMS}),
    "events": ([9], {"events": [9], "order": _abi.AFTER_STREAMS}),
    "idle": (True, {"order": _abi.ALREADY_IDLE}),
    "saver.use.idle": (False, {"order": _abi.AFTER_DEVICE}),
    "saver.reclaim.idle": (False, {"order": _abi.AFTER_DEVICE}),
    "first": ([(7, 5), (9, 1)], {"first": [7, 9], "first_bytes": [5, 1]}),
    "ranges": (
        {"q": (9, 5), "r": (8, 4)},
        {"names": [b"q", b"r"], "data": [9, 8], "bytes": [5, 4], "copied": [False, False], "count": 2},
    ),
    "copied": (["r"], {"copied": [False, True]}),
    "hash": (5, {"hash": [5]}),
    "peers": ([3, 4], {"peers": [3, 4]}),
    "saver.allocate.stream": (7, {"stream": 7, "function": "allocate_on"}),
    "arena.allocate.stream": (7, {"stream": 7, "function": "arena_allocate_on"}),
    "export": ("fabric", {"export_handles": _abi.EXPORT_FABRIC}),
    "new_tags": ("with_policy", {"new_tags": _abi.NEW_TAGS_WITH_POLICY}),
    "refresh": ("once", {"refresh": _abi.ONCE}),
    "storage": ("pageable", {"storage": _abi.PAGEABLE}),
    "Saver.device": (3, {"device": 3, "driver": _abi.DRIVER_CUDA}),
    "Share.device": (3, {"device": 3, "driver": _abi.DRIVER_CUDA}),
}
#: What arrives by default, where it is not 0 or null.
DEFAULTS = {"timeout_ns": -1, "room_within_ns": -1, "await_bytes": True, "answer_within_ns": 500_000_000}
DEFAULTS_OF: dict[str, dict[str, Any]] = {
    "saver.arena": {"device": _abi.ANY_DEVICE},
    "saver.use": {"order": _abi.ALREADY_IDLE},
    "saver.reclaim": {"order": _abi.ALREADY_IDLE, "device": _abi.ANY_DEVICE},
    "saver.is_paused": {"bytes": 1},
    "Saver": {"enabled": True},
}


def example(on: Everything, method: str, number: int, parameter: inspect.Parameter) -> tuple[Any, dict[str, Any]]:
    """Returns a value for a parameter that is not its default, and what arrives of it."""
    name, kind = parameter.name, str(parameter.annotation)
    if name in ("saver", "share"):
        return getattr(on, name), {"share": True} if name == "share" else {}
    if found := VALUES.get(f"{method}.{name}") or VALUES.get(name):
        return found
    if kind.startswith("str"):
        return Path(name) if "PathLike" in kind else name, {name: name.encode()}
    if kind.startswith(("float", "Time")):
        return 1.5, {f"{name}_ns": 1_500_000_000}
    if kind.startswith("Callable"):
        return print, {name: True, f"{name}_context": True}
    value = not parameter.default if isinstance(parameter.default, bool) else number
    return value, {name: value}


def not_0(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def check(on: Everything, method: str, of: Any, arriving: Callable[..., dict[str, Any]], **wanted: Any) -> None:
    """Checks what arrives by default, and of each parameter of `of`."""
    parameters = enumerate(inspect.signature(of).parameters.values(), 5)
    examples = {each.name: (each, *example(on, method, number, each)) for number, each in parameters}
    needed = {name: value for name, (about, value, _) in examples.items() if about.default is about.empty}
    base = arriving(**needed)
    wanted |= {name: value for name, value in DEFAULTS.items() if name in base} | DEFAULTS_OF.get(method, {})
    for name in needed:
        wanted |= examples[name][2]
    assert not_0(base) == not_0(wanted)
    for name in examples.keys() - needed.keys():
        _, value, arrives = examples[name]
        assert not_0(arriving(**needed, **{name: value})) == not_0(base | arrives)


@pytest.mark.parametrize(("of", "named"), [(of, named) for of, names in METHODS.items() for named in names.split()])
def test_methods(on: Everything, of: str, named: str) -> None:
    name, _, function = named.partition("=")
    use = getattr(getattr(on, of) if of else memsaver, name)
    check(on, f"{of}.{name}".strip("."), use, functools.partial(on.arriving, use), function=function or name)


@pytest.mark.parametrize("policy", [Discard, Zero, HostBackup, FileBackup, FileSource])
def test_policies(on: Everything, policy: Any) -> None:
    def arriving(**named: Any) -> Any:
        return on.arriving(on.saver.pause, policy=policy(**named))["bytes"]

    kind = re.sub("(?<=[a-z])(?=[A-Z])", "_", policy.__name__).upper()
    check(on, policy.__name__, policy, arriving, kind=getattr(_abi, kind), poison=-1, retain=True)


def an(attribute: str, value: object) -> Any:
    """Returns an object of another library."""
    return types.SimpleNamespace(**{attribute: value})


#: Calls, the function of C, and its arguments.
CALLS: list[tuple[Any, ...]] = [
    (lambda on: on.saver.drop(["a", "\N{SNOWMAN}"]), "drop", [b"a", b"\xe2\x98\x83"], 2),
    (lambda on: on.saver.drop(tag for tag in ["\udcff"]), "drop", [b"\xff"], 1),  # what is not valid UTF-8
    (lambda on: on.saver.drop(Under("a/")), "drop", [b"a/"], _abi.UNDER),
    (lambda on: on.saver.drop([]), "drop", [None], 0),
    (lambda on: on.saver.drop(None), "drop", None, 0),
    (lambda on: on.saver.region(on.arena).__enter__(), "push_arena"),
    (lambda on: on.arena.region().__enter__(), "push_arena"),
    (lambda on: on.saver.outside().__enter__(), "push_outside"),
    (lambda on: on.saver.buffer((3, 4), "<f4", alignment=6), "allocate", None, 48, 6),
    (lambda on: on.arena.buffer((3, 4), "<f4", alignment=6, stream=7), "arena_allocate_on", 48, 6, 7),
    (lambda on: on.saver.free(9), "deallocate", 9),
    (lambda on: on.saver.free(9, idle=True), "deallocate_idle", 9),
    (lambda on: on.saver.free(9, stream=an("handle", ctypes.c_void_p())), "deallocate_on", 9, 0),
    (lambda on: on.arena.free(9), "arena_deallocate", 9),
    (lambda on: on.arena.free(9, idle=True), "arena_deallocate_idle", 9),
    (lambda on: on.arena.free(9, stream=7), "arena_deallocate_on", 9, 7),
    (lambda on: on.saver.read_backup(9, 2), "read_backup", 9, 2, [b"\0", b"\0"]),
    (lambda on: on.saver.write_backup(9, b"new"), "write_backup", 9, b"new", 3),
    (lambda on: on.arrival.before(7), "arrival_before", 7),
    (lambda on: on.arrival.before(7, 9, 5), "arrival_before_range", 7, 9, 5),
    (lambda on: on.arrival.wait(), "arrival_wait"),
    (lambda on: on.arrival.wait(9, 5), "arrival_wait_range", 9, 5),
    (lambda on: on.use.until(7), "use_until", 7),
    (lambda on: on.use.until(event=8), "use_until_event", 8),
]


@pytest.mark.parametrize("call", CALLS, ids=[f"{i}-{name}" for i, (_, name, *_) in enumerate(CALLS)])
def test_calls(on: Everything, call: tuple[Any, ...]) -> None:
    assert tuple(on.arriving(call[0], on).values()) == call[1:]


@pytest.mark.parametrize("kind", [Saver, Share])
def test_host_memory(on: Everything, kind: Callable[..., object]) -> None:
    assert on.arriving(kind, "host")["driver"] == _abi.DRIVER_HOST


CONVERTED: list[tuple[str, Any, str, Any]] = [
    ("streams", [7, an("cuda_stream", 7), an("ptr", 7)], "streams", [7, 7, 7]),  # PyTorch, CuPy
    ("streams", [an("handle", ctypes.c_void_p(7))], "streams", [7]),  # Numba
    ("streams", [an("__cuda_stream__", lambda: (0, 7))], "streams", [7]),  # the protocol
    ("streams", [], "order", _abi.AFTER_STREAMS),
    ("events", [7, an("cuda_event", 7), an("handle", ctypes.c_void_p(7))], "events", [7, 7, 7]),
    ("events", [], "order", _abi.AFTER_STREAMS),
    ("policy", Discard(0), "bytes", plain(_abi.Policy(retain=True))),
    ("policy", Discard(255), "bytes", plain(_abi.Policy(poison=255, retain=True))),
    ("timeout", None, "timeout_ns", -1),
    ("timeout", 1e-10, "timeout_ns", 1),
    ("timeout", 2.0**62 / 1e9, "timeout_ns", 2**62),
    ("timeout", 1e300, "timeout_ns", 2**63 - 1),
    ("timeout", math.inf, "timeout_ns", 2**63 - 1),
]


@pytest.mark.parametrize(("parameter", "value", "field", "wanted"), CONVERTED)
def test_conversions(on: Everything, parameter: str, value: Any, field: str, wanted: object) -> None:
    assert on.arriving(on.saver.pause, **{parameter: value})[field] == wanted


REFUSED: list[tuple[type[Exception], str, Callable[[Any], object]]] = [
    (Misuse, "bytes cannot be -1", lambda on: on.saver.allocate(-1, "a")),
    (Misuse, "bytes cannot be 18446744073709551616", lambda on: on.saver.set_margin(1 << 64)),
    (TypeError, "", lambda on: on.saver.allocate(1.5, "a")),
    (Misuse, "pointer cannot be -1", lambda on: on.saver.free(-1)),
    (Misuse, "pointer cannot be -1", lambda on: on.saver.owns(-1)),
    (Misuse, "bytes cannot be -1", lambda on: on.saver.is_paused(1, -1)),
    (Misuse, "pointer cannot be -1", lambda on: on.saver.view(-1, 1)),
    (Misuse, "first_bytes cannot be -1", lambda on: on.saver.resume_async(first=[(1, -1)])),
    (Misuse, "priority cannot be -2147483649", lambda on: on.saver.arena("a", priority=-(1 << 31) - 1)),
    (Misuse, "device must be", lambda on: Saver("gpu")),  # type: ignore[arg-type]
    (Misuse, "export must be one of 'none', 'file_descriptor', 'fabric', not 'all'", lambda on: Saver(export="all")),  # type: ignore[arg-type]
    (Misuse, "do not select one", lambda on: Saver(0, share=on.share)),
    (Misuse, "do not select one", lambda on: Saver(export="fabric", share=on.share)),
    (TypeError, "tag must be a str, not bytes", lambda on: on.saver.region(b"a")),
    (TypeError, "tag must be a str, not int", lambda on: on.saver.pause([1])),
    (Misuse, "null character", lambda on: on.saver.region("a\0b")),
    (Misuse, "null character", lambda on: on.saver.arena("a", FileBackup("/tmp\0b"))),
    (TypeError, "a policy must be", lambda on: on.saver.arena("a", "host")),
    (Misuse, "refresh must be", lambda on: on.saver.pause(policy=HostBackup(refresh="never"))),  # type: ignore[arg-type]
    (Misuse, "0 or more seconds", lambda on: on.saver.pause(timeout=-1)),
    (Misuse, "0 or more seconds", lambda on: on.saver.resume(room_within=math.nan)),
    (Misuse, "idle=True waits for nothing", lambda on: on.saver.pause(streams=[0], idle=True)),
    (TypeError, "event must be an address", lambda on: on.saver.pause(events=["x"])),
    (TypeError, "stream must be an address", lambda on: on.saver.allocate(1, "a", stream="0")),
    (Misuse, "stream cannot be", lambda on: on.saver.allocate(1, "a", stream=1 << 64)),
    (Misuse, "stream= or idle=True", lambda on: on.saver.free(9, stream=0, idle=True)),
    (Misuse, "stream or an event", lambda on: on.use.until()),
    (Misuse, "pass both pointer and bytes", lambda on: on.arrival.wait(9)),
    (Misuse, "no range 'v'", lambda on: on.share.publish("n", on.saver, "a", {}, copied="v")),
    (TypeError, "'w' must be an array of a saver", lambda on: on.share.publish("n", on.saver, "a", {"w": b""})),
    (TypeError, "moment must be a Moment, not 7", lambda on: on.saver.add_hook(7, print)),
]


@pytest.mark.parametrize(("error", "text", "use"), REFUSED)
def test_what_python_refuses(on: Everything, error: type[Exception], text: str, use: Callable[[Any], object]) -> None:
    fails(error, text, use, on)
    assert not on.arrived
