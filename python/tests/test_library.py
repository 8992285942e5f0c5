"""How the library is found, and the error if it is not."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from checks import fails, python

import memsaver
from memsaver import _library

ROOT = Path(__file__).resolve().parents[2]


def test_versions() -> None:
    project = (ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.*)"$', project, re.MULTILINE)
    assert found
    assert memsaver.version() == found[1]
    assert "libmemsaver.so" in memsaver.library_path()


def test_a_library_that_is_not_there() -> None:
    done = python(
        """
import memsaver
memsaver.HostBackup()  # needs none
try:
    memsaver.Saver("host")
except memsaver.Unavailable as error:
    print(error)
""",
        library="/nowhere/libmemsaver.so",
    )
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("/nowhere/libmemsaver.so", "cmake --build build --target memsaver_c", "MEMSAVER_LIBRARY"):
        assert text in done.stdout


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
    header = tmp_path / "include" / "memsaver" / "c.h"
    header.parent.mkdir(parents=True)
    header.touch()
    libraries = [tmp_path / "build" / "libmemsaver.so", tmp_path / "build" / "test" / "libmemsaver.so"]
    for age, library in enumerate(libraries):
        library.parent.mkdir(parents=True, exist_ok=True)
        library.touch()
        os.utime(library, (1000 - age, 1000 - age))
    assert _library._in_checkout(tmp_path) == libraries
