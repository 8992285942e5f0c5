"""Checks what memsaver._abi reads from include/memsaver/c.h against a C compiler, and the enumerators of the package."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess

import pytest

from memsaver import EventKind, Moment, _abi, errors, policies

CODE = re.sub(r"//[^\n]*", "", _abi.HEADER.read_text(encoding="utf-8"))


def enumerators(name: str) -> dict[str, int]:
    found = re.search(rf"typedef enum {name} \{{(.*?)\}}", CODE, re.DOTALL)
    assert found
    return {key: int(value) for key, value in re.findall(r"(MEMSAVER_\w+) = (\d+)", found[1])}


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
    made = ctypes.POINTER(handle)
    assert _abi.FUNCTIONS["memsaver_drop"] == (ctypes.c_int, (handle, names, ctypes.c_size_t))
    assert _abi.FUNCTIONS["memsaver_create"] == (ctypes.c_int, (ctypes.POINTER(_abi.Options), made))
    assert _abi.FUNCTIONS["memsaver_use_lost"][1] == (handle, ctypes.POINTER(names), ctypes.POINTER(ctypes.c_size_t))
    assert _abi.FUNCTIONS["memsaver_get_usage_json"][1] == (handle, made)  # not a str: the program frees it
    assert _abi.FUNCTIONS["memsaver_torch_allocate"] == (handle, (ctypes.c_ssize_t, ctypes.c_int, handle))
    assert _abi.FUNCTIONS["memsaver_last_error"] == (text, ())


def test_results() -> None:
    results = enumerators("memsaver_result")
    assert results.pop("MEMSAVER_OK") == 0
    assert {f"MEMSAVER_{_upper(kind.__name__)}": number for number, kind in errors.BY_RESULT.items()} == {
        ("MEMSAVER_INTERNAL_ERROR" if name == "MEMSAVER_INTERNAL" else name): number for name, number in results.items()
    }


def _upper(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def test_enumerators() -> None:
    assert enumerators("memsaver_moment") == {f"MEMSAVER_{moment.name}": moment.value for moment in Moment}
    assert enumerators("memsaver_event_kind") == {f"MEMSAVER_EVENT_{kind.name}": kind.value for kind in EventKind}
    assert enumerators("memsaver_refresh") == {f"MEMSAVER_{k.upper()}": n for k, n in policies._REFRESH.items()}
    assert enumerators("memsaver_storage") == {f"MEMSAVER_{k.upper()}": n for k, n in policies._STORAGE.items()}
    assert list(enumerators("memsaver_policy_kind").values()) == [0, 1, 2, 3, 4]
    assert list(enumerators("memsaver_order").values()) == [0, 1, 2]
    assert list(enumerators("memsaver_driver").values()) == [0, 1, 2]
    assert list(enumerators("memsaver_export").values()) == [0, 1, 2]
