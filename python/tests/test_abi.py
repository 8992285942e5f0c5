"""Checks memsaver._abi against include/memsaver/c.h: names, order and types."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from memsaver import EventKind, Moment, _abi, errors, policies

HEADER = Path(__file__).resolve().parents[2] / "include" / "memsaver" / "c.h"
CODE = re.sub(r"//[^\n]*", "", HEADER.read_text(encoding="utf-8"))

FIELD = re.compile(r"([\w ]+?[\w*]) ?(const)? ?(\**)(\w+)(\[\d+\])?\Z")
SCALARS = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "int": ctypes.c_int,
    "bool": ctypes.c_bool,
}


def is_pointer(kind: object) -> bool:
    return kind in (ctypes.c_char_p, ctypes.c_void_p) or (
        isinstance(kind, type) and issubclass(kind, (ctypes._Pointer, ctypes._CFuncPtr))  # type: ignore[attr-defined]
    )


def same(declared: str, kind: object) -> bool:
    """Returns whether a C type matches the declared ctypes type."""
    declared = declared.strip()
    if declared.endswith("_function") or "*" in declared:
        return is_pointer(kind)
    if declared.endswith("]"):
        return kind == ctypes.c_char * int(declared[declared.index("[") + 1 : -1])
    if declared == "memsaver_result":
        return kind is ctypes.c_int
    return kind is SCALARS[declared]


def declared_fields(body: str) -> list[tuple[str, str]]:
    fields = []
    for statement in body.split(";"):
        if statement := " ".join(statement.split()):
            found = re.fullmatch(r"(.*?)(\w+)(\[\d+\])?", statement)
            assert found, statement
            fields.append((found[2], found[1].strip() + (found[3] or "")))
    return fields


STRUCTURES = {
    found[2]: declared_fields(found[1]) for found in re.finditer(r"typedef struct \w+ \{(.*?)\} (\w+);", CODE, re.DOTALL)
}
FUNCTIONS = {
    found[2]: (found[1].strip(), " ".join(found[3].split()))
    for found in re.finditer(r"MEMSAVER_API ([\w \*]+?)(memsaver_\w+)\((.*?)\)\s*MEMSAVER_NOEXCEPT;", CODE, re.DOTALL)
}


def enumerators(name: str) -> dict[str, int]:
    found = re.search(rf"typedef enum {name} \{{(.*?)\}}", CODE, re.DOTALL)
    assert found
    return {key: int(value) for key, value in re.findall(r"(MEMSAVER_\w+) = (\d+)", found[1])}


def test_every_structure_is_known() -> None:
    assert set(STRUCTURES) == set(_abi.STRUCTURES)


@pytest.mark.parametrize("name", _abi.STRUCTURES)
def test_structure(name: str) -> None:
    known = _abi.STRUCTURES[name]._fields_
    assert [field for field, _ in STRUCTURES[name]] == [field[0] for field in known]
    for (field, declared), (_, kind, *_) in zip(STRUCTURES[name], known, strict=True):
        assert same(declared, kind), f"{name}.{field} is {declared}"
    assert _abi.STRUCTURES[name]().size == ctypes.sizeof(_abi.STRUCTURES[name])


def test_every_function_is_known() -> None:
    assert set(FUNCTIONS) - set(_abi.TORCH_FUNCTIONS) == set(_abi.FUNCTIONS)


@pytest.mark.parametrize("name", [*_abi.FUNCTIONS, *(set(_abi.TORCH_FUNCTIONS) & set(FUNCTIONS))])
def test_function(name: str) -> None:
    answer, arguments = FUNCTIONS[name]
    result, known = {**_abi.FUNCTIONS, **_abi.TORCH_FUNCTIONS}[name]
    assert result is None if answer == "void" else same(answer, result)
    kinds = [] if arguments == "void" else [re.sub(r"\w+$", "", argument) for argument in arguments.split(", ")]
    assert len(kinds) == len(known)
    for declared, kind in zip(kinds, known, strict=True):
        assert (kind is ctypes.c_ssize_t) if declared.strip() in ("ptrdiff_t", "ssize_t") else same(declared, kind)


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
