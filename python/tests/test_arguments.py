"""What arrives in C of each argument: where methods put it, what becomes of it, and what is refused."""

from __future__ import annotations

import ctypes
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
from memsaver import Discard, FileBackup, FileSource, HostBackup, Misuse, Saver, Share, Under, Zero, _abi, _callbacks
from memsaver._arguments import passed, structure
from memsaver._callbacks import Handle

RESULTS = type(ctypes.byref(ctypes.c_int())), _abi.Sized


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[types.SimpleNamespace]:
    """An object of each kind."""
    where: dict[str, Any] = {"host_machine": f"py-{os.getpid()}-arguments", "host_capacity": 64 * MIB}
    with Share("host", folder=tmp_path_factory.mktemp("share"), **where) as share, Saver(share=share) as saver:
        arena = saver.arena("a", FileSource())
        made = {"gate": saver.gate(arena.allocate(MIB), 1), "use": saver.use([]), "arrival": saver.resume_async([])}
        made |= {"saver": saver, "share": share, "arena": arena, "elastic": arena.elastic(4 * MIB), "package": memsaver}
        yield types.SimpleNamespace(**made)


class Arrived(Exception):
    """A function of C and its arguments before they are converted."""


@pytest.fixture
def on(everything: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    def refuse(function: str, given: Any) -> Any:
        raise Arrived(function, [*given])

    monkeypatch.setattr(_callbacks, "passed", refuse)
    return everything


def reached(use: Callable[..., object], *arguments: Any, **named: Any) -> tuple[str, list[tuple[str, Any, Any]]]:
    """Returns the function that a call reaches, and its arguments with their names and types in C."""
    with pytest.raises(Arrived) as arrived:
        use(*arguments, **named)
    function, given = arrived.value.args
    declared = _abi.ARGUMENTS[function]
    assert len(given) >= len(declared) - 1  # the last one may be the result
    return function.removeprefix("memsaver_"), [(*each, of) for each, of in zip(declared, given, strict=False)]


def arriving(use: Callable[..., object], **named: Any) -> dict[str, Any]:
    """Returns the function that a call reaches, and by their names its arguments and, as "options.name", its options."""
    function, arguments = reached(use, **named)
    values: dict[str, Any] = {"function": function}

    def add(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, of in value.items():
                add(f"{path}.{name}", of)
        elif not isinstance(value, RESULTS):
            values[path] = value

    for name, _, value in arguments:
        add(name, value)
    return values


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
    "package": "Saver=create Share=join_share",
}
#: Values of parameters that a method looks at, and what arrives. Others arrive as they are, whatever they are.
LOOKED_AT: dict[str, tuple[Any, dict[str, Any]]] = {
    "tags": ("a", {"names": "a"}),
    "out": ("a", {"out_names": "a"}),
    "in_": ("b", {"in_names": "b"}),
    "get_arena.policy": (Zero(), {"policy": Zero()}),
    "policy": (Zero(), {"bytes": Zero()}),
    "policy_out": (Zero(), {"bytes": Zero()}),
    "policy_in": (Zero(), {"bytes": Zero()}),
    "streams": ([7, 8], {"order": _abi.AFTER_STREAMS, "streams": [7, 8], "events": []}),
    "events": ([9], {"order": _abi.AFTER_STREAMS, "streams": [], "events": [9]}),
    "idle": (True, {"order": _abi.ALREADY_IDLE}),
    "begin_use.idle": (False, {"order": _abi.AFTER_DEVICE}),
    "reclaim.idle": (False, {"order": _abi.AFTER_DEVICE}),
    "first": ([(7, 5), (9, 1)], {"first": [7, 9], "first_bytes": [5, 1]}),
    "ranges": ({"q": (9, 5), "r": (8, 4)}, {"names": ["q", "r"], "data": [9, 8], "bytes": [5, 4], "copied": [False] * 2}),
    "copied": (["r"], {"copied": [False, True]}),
    "hash": (5, {"hash": [5]}),
    "peers": ([3, 4], {"peers": [3, 4]}),
    "allocate.stream": (7, {"function": "allocate_on", "stream": 7}),
    "arena_allocate.stream": (7, {"function": "arena_allocate_on", "stream": 7}),
    "create.device": (3, {"driver": _abi.DRIVER_CUDA, "device": 3}),
    "join_share.device": (3, {"driver": _abi.DRIVER_CUDA, "device": 3}),
}


def example(on: Any, function: str, number: int, parameter: inspect.Parameter) -> tuple[Any, dict[str, Any]]:
    """Returns a value of a parameter, and what arrives of it."""
    name = parameter.name
    if name in ("saver", "share"):
        return getattr(on, name), {name: getattr(on, name)._handle}
    if str(parameter.annotation).startswith("Callable"):
        return print, {name: getattr(_callbacks, name)}
    return LOOKED_AT.get(f"{function}.{name}") or LOOKED_AT.get(name) or (number, {name: number})


@pytest.mark.parametrize(("of", "named"), [(of, named) for of, names in METHODS.items() for named in names.split()])
def test_methods(on: Any, of: str, named: str) -> None:
    """Each parameter arrives, and nothing else changes."""
    name, _, function = named.partition("=")
    use = getattr(getattr(on, of), name)
    parameters = inspect.signature(use).parameters.values()
    examples = {each.name: example(on, function or name, i, each) for i, each in enumerate(parameters, 5)}
    needed = {each.name: examples[each.name][0] for each in parameters if each.default is each.empty}
    base = arriving(use, **needed)
    wanted: dict[str, Any] = {"function": function or name}
    for each in needed:
        wanted |= examples[each][1]
    assert wanted.items() <= {path.rpartition(".")[2]: value for path, value in base.items()}.items()
    for each in examples.keys() - needed.keys():
        value, wanted = examples[each]
        found = arriving(use, **needed, **{each: value})
        changes = {path.rpartition(".")[2]: of for path, of in found.items() if path not in base or base[path] != of}
        changes.pop(f"{each}_context", None)
        assert changes == wanted


def calls(on: Any, of: str) -> Iterator[tuple[Callable[..., object], list[inspect.Parameter], dict[str, Any]]]:
    """Yields methods, their parameters, and values for those that have no default."""
    good = {"saver": on.saver, "ranges": {}, "in_": "b", "stream": 0}
    for name in METHODS[of].split():
        use = getattr(getattr(on, of), name.partition("=")[0])
        parameters = [*inspect.signature(use).parameters.values()]
        needed = [each for each in parameters if each.default is each.empty]
        yield use, parameters, {each.name: good.get(each.name, 1 if each.annotation == "int" else "a") for each in needed}


@pytest.mark.parametrize("of", METHODS)
def test_defaults(on: Any, of: str) -> None:
    """What nobody asked for arrives as the macros in C have it."""
    for use, _, needed in calls(on, of):
        parts = [(kind._type_, each) for _, kind, each in reached(use, **needed)[1] if isinstance(each, dict)]
        for kind, options in parts:
            kinds = dict(kind._fields_)
            parts += [(kinds[name]._type_, each) for name, each in options.items() if isinstance(each, dict)]
            given = {name: each for name, each in options.items() if each not in ("", []) and not isinstance(each, dict)}
            assert bytes(structure(kind, **given)) == bytes(kind()), use


@pytest.mark.parametrize("policy", [Discard, Zero, HostBackup, FileBackup, FileSource])
def test_policies(policy: Any) -> None:
    values = {"directory": Path("/d"), "refresh": "once", "storage": "pageable"}
    arrive = {"directory": b"/d", "refresh": _abi.ONCE, "storage": _abi.PAGEABLE}
    for number, each in enumerate(inspect.signature(policy).parameters.values(), 5):
        number = not each.default if isinstance(each.default, bool) else number
        values.setdefault(each.name, number)
        arrive.setdefault(each.name, number)
    kind = getattr(_abi, re.sub("(?<=[a-z])(?=[A-Z])", "_", policy.__name__).upper())
    given = {name: values[name] for name in inspect.signature(policy).parameters}
    made = structure(_abi.PauseOptions, bytes=policy(**given)).bytes.contents
    wanted = {"poison": -1, "retain": True, "kind": kind} | {name: arrive[name] for name in given}
    assert {name: getattr(made, name) for name in wanted} == wanted


def an(attribute: str, value: object) -> Any:
    """Returns an object of another library."""
    return types.SimpleNamespace(**{attribute: value})


#: Calls, the function of C, and its arguments behind the handle.
CALLS: list[tuple[Any, ...]] = [
    (lambda on: on.saver.region(on.arena).__enter__(), "push_arena"),
    (lambda on: on.arena.region().__enter__(), "push_arena"),
    (lambda on: on.saver.outside().__enter__(), "push_outside"),
    (lambda on: on.saver.buffer((3, 4), "<f4", alignment=6), "allocate", None, 48, 6),
    (lambda on: on.arena.buffer((3, 4), "<f4", alignment=6, stream=7), "arena_allocate_on", 48, 6, 7),
    (lambda on: on.saver.free(9), "deallocate", 9),
    (lambda on: on.saver.free(9, idle=True), "deallocate_idle", 9),
    (lambda on: on.saver.free(9, stream=0), "deallocate_on", 9, 0),
    (lambda on: on.arena.free(9), "arena_deallocate", 9),
    (lambda on: on.arena.free(9, idle=True), "arena_deallocate_idle", 9),
    (lambda on: on.arena.free(9, stream=7), "arena_deallocate_on", 9, 7),
    (lambda on: on.saver.write_backup(9, b"new"), "write_backup", 9, b"new", 3),
    (lambda on: on.arrival.before(7), "arrival_before", 7),
    (lambda on: on.arrival.before(7, 9, 5), "arrival_before_range", 7, 9, 5),
    (lambda on: on.arrival.wait(), "arrival_wait"),
    (lambda on: on.arrival.wait(9, 5), "arrival_wait_range", 9, 5),
    (lambda on: on.use.until(7), "use_until", 7),
    (lambda on: on.use.until(event=8), "use_until_event", 8),
]


@pytest.mark.parametrize("call", CALLS, ids=[f"{i}-{name}" for i, (_, name, *_) in enumerate(CALLS)])
def test_calls(on: Any, call: tuple[Any, ...]) -> None:
    function, arguments = reached(call[0], on)
    assert (function, *(value for _, _, value in arguments if not isinstance(value, (Handle, *RESULTS)))) == call[1:]


#: A function, Python's arguments behind the handle, and those of C.
CONVERTED: list[tuple[str, list[Any], list[Any]]] = [
    ("drop", ["\N{SNOWMAN}"], [[b"\xe2\x98\x83"], 1]),
    ("drop", [(tag for tag in ["\udcff", "a"])], [[b"\xff", b"a"], 2]),  # the first is not valid UTF-8
    ("drop", [Under("a/")], [[b"a/"], _abi.UNDER]),
    ("drop", [[]], [[None], 0]),
    ("drop", [None], [None, 0]),
    ("load", [9, 8, Path("/f"), 7], [9, 8, b"/f", 7]),
    *(("gate_before", [stream], [7]) for stream in (7, an("cuda_stream", 7), an("ptr", 7))),  # PyTorch, CuPy
    ("gate_before", [an("handle", ctypes.c_void_p(7))], [7]),  # Numba
    ("gate_before", [an("handle", ctypes.c_void_p())], [0]),
    ("gate_before", [an("__cuda_stream__", lambda: (0, 7))], [7]),  # the protocol
    *(("use_until_event", [event], [7]) for event in (7, an("cuda_event", 7), an("handle", ctypes.c_void_p(7)))),
]


@pytest.mark.parametrize(("function", "given", "wanted"), CONVERTED)
def test_conversions(function: str, given: list[Any], wanted: list[Any]) -> None:
    made = passed(f"memsaver_{function}", [None, *given])[1:]
    assert [[*each] if isinstance(each, ctypes.Array) else each for each in made] == wanted


SECONDS = {None: -1, 0: 0, 1e-10: 1, 2.0**62 / 1e9: 2**62, 1e300: 2**63 - 1, math.inf: 2**63 - 1}


def test_options() -> None:
    for seconds, wanted in SECONDS.items():
        assert structure(_abi.UseOptions, timeout=seconds).timeout_ns == wanted
    made = structure(_abi.UseOptions, streams=[7, an("ptr", 8)], events=[9], await_bytes=False)
    assert (made.streams[:2], made.stream_count, made.events[:1], made.event_count) == ([7, 8], 2, [9], 1)
    assert not made.await_bytes


#: What no parameter of a kind takes.
BAD = {"int": 1 << 64, "str": 7, "Tags": ["a", 7], "Time": math.nan, "float": -1, "Stream": "0", "Streams": [1 << 64]}
BAD |= {"Events": ["x"], "Policy": "host", "Export": "all", "NewTags": "all"}


@pytest.mark.parametrize("of", METHODS)
def test_what_every_method_refuses(everything: Any, of: str) -> None:
    for use, parameters, needed in calls(everything, of):
        for each in parameters:
            bad = BAD.get(each.annotation.partition(" |")[0])
            if bad is not None:
                with pytest.raises((Misuse, TypeError)) as refused:
                    use(**needed | {each.name: bad})
                assert getattr(refused.value, "result", 0) == 0, (use, each.name)  # by Python


REFUSED: list[tuple[Any, str, Callable[[Any], object]]] = [
    (Misuse, "bytes cannot be -1", lambda on: on.saver.allocate(-1, "a")),
    (Misuse, "pointer cannot be -1", lambda on: on.saver.view(-1, 1)),
    (Misuse, "first_bytes cannot be -1", lambda on: on.saver.resume_async(first=[(1, -1)])),
    (Misuse, "device must be", lambda on: Saver("gpu")),  # type: ignore[arg-type]
    (Misuse, "export must be one of 'none', 'file_descriptor', 'fabric', not 'all'", lambda on: Saver(export="all")),  # type: ignore[arg-type]
    (Misuse, "do not select one", lambda on: Saver(0, share=on.share)),
    (TypeError, "tag must be a str, not bytes", lambda on: on.saver.region(b"a")),
    (Misuse, "null character", lambda on: on.saver.region("a\0b")),
    (Misuse, "refresh must be", lambda on: on.saver.pause(policy=HostBackup(refresh="never"))),  # type: ignore[arg-type]
    (Misuse, "idle=True waits for nothing", lambda on: on.saver.pause(streams=[0], idle=True)),
    (Misuse, "stream= or idle=True", lambda on: on.saver.free(9, stream=0, idle=True)),
    (Misuse, "stream or an event", lambda on: on.use.until()),
    (Misuse, "pass both pointer and bytes", lambda on: on.arrival.wait(9)),
    (Misuse, "no range 'v'", lambda on: on.share.publish("n", on.saver, "a", {}, copied="v")),
    (TypeError, "'w' must be an array of a saver", lambda on: on.share.publish("n", on.saver, "a", {"w": b""})),
    (TypeError, "moment must be a Moment, not 7", lambda on: on.saver.add_hook(7, print)),
]


@pytest.mark.parametrize(("error", "text", "use"), REFUSED)
def test_what_python_refuses(everything: Any, error: Any, text: str, use: Callable[[Any], object]) -> None:
    fails(error, text, use, everything)
