"""The declarations of memsaver's C interface for ctypes, read from its header, c.h: structures, callbacks, functions, and
numbers of enumerators.

A structure is a class with its name in CamelCase: `memsaver_pause_options` is `PauseOptions`, `MEMSAVER_ONCE` is `ONCE`.
Handles are `c_void_p`, as are texts that the program must free. Loads nothing.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

UNDER = ctypes.c_size_t(-1).value

_SCALARS: dict[str, Any] = {
    "void": None,
    "memsaver_result": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "ptrdiff_t": ctypes.c_ssize_t,
}
for _name in ("bool", "int", "int32_t", "uint32_t", "int64_t", "uint64_t"):
    _SCALARS[_name] = getattr(ctypes, f"c_{_name.removesuffix('_t')}")
STRUCTURES: dict[str, type[Sized]] = {}
FUNCTIONS: dict[str, tuple[Any, dict[str, Any]]] = {}  # the types of the result and of the arguments
TAGS = object()  # instead of the type of a list of names
ARGUMENTS: dict[str, list[tuple[str, Any]]] = {}  # of the arguments, where a list of names and its count are one
_callbacks: dict[str, Any] = {}


def _limits(kind: Any) -> tuple[int, int]:
    lowest = min(0, kind(1 << (8 * ctypes.sizeof(kind) - 1)).value)
    return lowest, kind(lowest - 1).value


#: The lowest and the highest number of each type, of which ctypes would truncate others.
LIMITS = {kind: _limits(kind) for kind in (ctypes.c_void_p, *_SCALARS.values()) if kind not in (None, ctypes.c_bool)}


class Sized(ctypes.Structure):
    """A structure whose first field is its size. Omitted fields have the defaults of its macro; without one they are 0."""

    size: int
    defaults: dict[str, int]

    def __init__(self, **fields: Any) -> None:
        super().__init__(ctypes.sizeof(self), **self.defaults | fields)

    def __getattr__(self, name: str) -> Any:  # the fields
        raise AttributeError(name)


def _header() -> Path:
    """Finds c.h: beside the package where pip has installed it with its library, else in the checkout, else with the
    library that the environment names, else in the system.
    """
    package = Path(__file__).resolve().parent
    named = os.environ.get("MEMSAVER_LIBRARY")
    roots = [package.parents[1], *(Path(named).resolve().parents if named else ()), Path("/usr/local"), Path("/usr")]
    for path in (package / "c.h", *(root / "include" / "memsaver" / "c.h" for root in roots)):
        if path.is_file():
            return path
    raise ImportError("memsaver/c.h is not found: `pip install ./python` in a checkout of memsaver installs it")


def _type_of(declared: str) -> Any:
    """Returns the ctypes type of a C type."""
    base, stars = re.sub(r"\bconst\b|[\s*]", "", declared), declared.count("*")
    if base == "char":
        kind = ctypes.c_char_p if declared.lstrip().startswith("const") else ctypes.c_void_p
    elif base in _callbacks:
        return _callbacks[base]
    elif base in STRUCTURES and stars:
        kind = ctypes.POINTER(STRUCTURES[base])
    elif stars and (base == "void" or base not in _SCALARS):  # a handle
        kind = ctypes.c_void_p
    else:
        kind, stars = _SCALARS[base], stars + 1
    for _ in range(stars - 1):
        kind = ctypes.POINTER(kind)
    return kind


def _split(declarations: Iterable[str]) -> list[tuple[str, Any]]:
    """Returns the name and type of each declaration, such as `const char* tag` or `char name[128]`."""
    found = []
    for declaration in declarations:
        if match := re.fullmatch(r"(.*?)(\w+)(?:\[(\d+)\])?", " ".join(declaration.split())):
            kind = ctypes.c_char * int(match[3]) if match[3] else _type_of(match[1])
            found.append((match[2], kind))
    return found


def _read(code: str) -> None:
    for found in re.finditer(
        r"typedef struct \w+ \{(?P<fields>.*?)\} memsaver_(?P<structure>\w+);"
        r"|typedef (?P<answer>\w+) \(\*memsaver_(?P<callback>\w+)\)\((?P<passed>.*?)\);"
        r"|MEMSAVER_API (?P<result>[^;()]*?)(?P<function>memsaver_\w+)\((?P<arguments>[^;()]*)\) MEMSAVER_NOEXCEPT;",
        code,
        re.DOTALL,
    ):
        name = "".join(part.capitalize() for part in (found["structure"] or found["callback"] or "").split("_"))
        if found["structure"]:
            made = type(name, (Sized,), {"_fields_": _split(found["fields"].split(";")), "defaults": {}})
            STRUCTURES["memsaver_" + found["structure"]] = globals()[name] = made
        elif found["callback"]:
            passed = [kind for _, kind in _split(found["passed"].split(","))]
            made = ctypes.CFUNCTYPE(_type_of(found["answer"]), *passed)
            _callbacks["memsaver_" + found["callback"]] = globals()[name] = made
        else:
            arguments = {} if found["arguments"] == "void" else dict(_split(found["arguments"].split(",")))
            FUNCTIONS[found["function"]] = _type_of(found["result"]), arguments
            counts = {each: each.replace("names", "count") for each in arguments}
            lists = {each for each, count in counts.items() if arguments.get(count) is ctypes.c_size_t and each != count}
            passed = [(each, TAGS if each in lists else kind) for each, kind in arguments.items()]
            ARGUMENTS[found["function"]] = [each for each in passed if each[0] not in map(counts.get, lists)]
    for enumerator, number in re.findall(r"\bMEMSAVER_(\w+) = (\d+)\b", code):
        globals()[enumerator] = int(number)
    for structure, defaults in re.findall(r"MEMSAVER_INIT\((memsaver_\w+),([^)]*)\)", code):
        for (field, *_), word in zip(STRUCTURES[structure]._fields_[1:], re.findall(r"[^\s,]+", defaults), strict=True):
            number = {"true": 1, "false": 0}.get(word, globals().get(word.removeprefix("MEMSAVER_")))
            if number is None and word not in ("NULL", '""'):
                number = int(word)
            if number:
                STRUCTURES[structure].defaults[field] = number


def __getattr__(name: str) -> Any:  # the structures, callbacks and enumerators, for type checkers
    raise AttributeError(name)


HEADER = _header()
_read(re.sub(r"//[^\n]*|\\\n", "", HEADER.read_text(encoding="utf-8")))


def text(raw: bytes | None) -> str:
    """Decodes text of the library. Bytes of a tag name that are not valid UTF-8 are preserved (surrogateescape)."""
    return raw.decode("utf-8", "surrogateescape") if raw else ""


def declare(library: ctypes.CDLL) -> None:
    """Declares the types of a loaded library's functions. Raises AttributeError if one is missing."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, [*arguments.values()]
