"""The package: what it reads of c.h, which library it loads, and the code of its pages, which runs unless it is marked."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from conftest import fails, python

import memsaver
from memsaver import EventKind, Moment, _abi, _library, errors

ROOT = Path(__file__).resolve().parents[2]
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


def test_enumerators() -> None:
    """Each result has its class, each moment and each kind of event its member."""
    numbers = {"result": [0, *errors.BY_RESULT], "event_kind": [*EventKind], "moment": [each.value for each in Moment]}
    for name, found in numbers.items():
        declared = re.search(rf"typedef enum memsaver_{name} \{{(.*?)\}}", CODE, re.DOTALL)
        assert declared
        assert sorted(found) == sorted(map(int, re.findall(r"\w+ = (\d+)", declared[1])))


def test_versions() -> None:
    project = (ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.*)"$', project, re.MULTILINE)
    assert found
    assert memsaver.version() == found[1]
    assert "libmemsaver.so" in memsaver.library_path()


def test_a_library_that_is_not_there() -> None:
    program = "import memsaver; memsaver.HostBackup(); memsaver.Saver('host')"  # a policy needs none
    done = python(program, library="/nowhere/libmemsaver.so")
    assert done.returncode == 1
    for text in ("Unavailable", "/nowhere/libmemsaver.so", "cmake --build build --target memsaver_c", "MEMSAVER_LIBRARY"):
        assert text in done.stderr


def test_a_copy_of_the_package(tmp_path: Path) -> None:
    """The header is that of the library."""
    package = tmp_path / "python" / "memsaver"
    shutil.copytree(ROOT / "python" / "memsaver", package, ignore=shutil.ignore_patterns("*.h", "*.so*"))
    done = python("import memsaver; memsaver.Saver('host').close(); print(memsaver.__file__)", package)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(package / "__init__.py")


def test_a_library_that_is_another_or_older(monkeypatch: pytest.MonkeyPatch) -> None:
    fails(OSError, "not memsaver's C interface", _library._load, "libc.so.6")
    monkeypatch.setattr(_library, "OLDEST", 1000000)
    fails(OSError, "is required", _library._load, memsaver.library_path())


def test_what_was_built_last_comes_first(tmp_path: Path) -> None:
    assert _library._in_checkout(tmp_path) == []  # no checkout
    files = [tmp_path / name for name in ("build/libmemsaver.so", "build/test/libmemsaver.so", "include/memsaver/c.h")]
    for age, path in enumerate(files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    assert _library._in_checkout(tmp_path) == files[:2]


BLOCK = re.compile(r"(<!-- fragment: [^\n]+ -->\n)?```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_page(page: str) -> None:
    programs = [code for fragment, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if not fragment]
    assert programs
    for program in programs:
        exec(compile(program, page, "exec"), {})


def test_the_package_says_what_runs() -> None:
    assert memsaver.__doc__
    program = textwrap.dedent("\n".join(re.findall(r"^    .*$", memsaver.__doc__, re.MULTILINE)))
    exec(program, {"memsaver": memsaver})


def test_everything_public_has_a_docstring() -> None:
    for name, public in vars(memsaver).items():
        if isinstance(public, type):
            assert public.__doc__, name
            for method, function in vars(public).items():
                if not method.startswith("_") and callable(function):
                    assert function.__doc__, f"{name}.{method}"
