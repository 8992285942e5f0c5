"""Checks what memsaver._abi reads from include/memsaver/c.h against a C compiler, and the enumerators of the package."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from typing import Any

import pytest

from memsaver import EventKind, Moment, _abi, errors

CODE = re.sub(r"//[^\n]*", "", _abi.HEADER.read_text(encoding="utf-8"))


def test_everything_is_read() -> None:
    assert len(_abi.STRUCTURES) == len(re.findall(r"typedef struct \w+ \{", CODE))
    assert len(_abi.FUNCTIONS) == len(re.findall(r"^MEMSAVER_API ", CODE, re.MULTILINE)) > 80
    assert all(made().size == ctypes.sizeof(made) for made in _abi.STRUCTURES.values())


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_layouts() -> None:
    lines = [f'#include "{_abi.HEADER}"']
    for name, made in _abi.STRUCTURES.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(made)}, "{name}");')
        for field, *_ in made._fields_:
            place = getattr(made, field)
            same = f"offsetof({name}, {field}) == {place.offset} && sizeof((({name}*)0)->{field}) == {place.size}"
            lines.append(f'_Static_assert({same}, "{name}.{field}");')
    done = subprocess.run(
        ["cc", "-x", "c", "-std=c11", "-fsyntax-only", "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_types() -> None:
    names, handle, text = ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p, ctypes.c_char_p
    made, count = ctypes.POINTER(handle), ctypes.c_size_t
    wanted: dict[str, tuple[Any, dict[str, Any]]] = {
        "drop": (ctypes.c_int, {"saver": handle, "names": names, "count": count}),
        "create": (ctypes.c_int, {"options": ctypes.POINTER(_abi.Options), "saver": made}),
        "use_lost": (ctypes.c_int, {"use": handle, "names": ctypes.POINTER(names), "count": ctypes.POINTER(count)}),
        "get_usage_json": (ctypes.c_int, {"saver": handle, "json": made}),  # not a str: the program frees it
        "torch_allocate": (handle, {"bytes": ctypes.c_ssize_t, "device": ctypes.c_int, "stream": handle}),
        "last_error": (text, {}),
    }
    assert {name: _abi.FUNCTIONS[f"memsaver_{name}"] for name in wanted} == wanted


def test_enumerators() -> None:
    """Each result has its class, each moment and each kind of event its member."""
    classes = {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper(): number for number, kind in errors.BY_RESULT.items()
    }
    classes["INTERNAL"] = classes.pop("INTERNAL_ERROR")
    events = {f"EVENT_{kind.name}": kind.value for kind in EventKind}
    moments = {moment.name: moment.value for moment in Moment}
    for name, found in {"result": {"OK": 0, **classes}, "event_kind": events, "moment": moments}.items():
        declared = re.search(rf"typedef enum memsaver_{name} \{{(.*?)\}}", CODE, re.DOTALL)
        assert declared
        assert {f"MEMSAVER_{key} = {number}" for key, number in found.items()} == set(re.findall(r"\w+ = \d+", declared[1]))
