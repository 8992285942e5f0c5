"""What test files need: a saver on host memory for each test, programs of their own, and why GPU tests are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memsaver

MIB = 1 << 20


def pytest_configure() -> None:
    try:
        memsaver.library_path()
    except memsaver.Unavailable as error:
        pytest.exit(str(error), returncode=1)


@pytest.fixture
def saver() -> Iterator[memsaver.Saver]:
    """A saver on 256 MiB of host memory with pages of 64 KiB, closed after the test."""
    with memsaver.Saver("host", host_capacity=256 * MIB, host_granularity=1 << 16) as made:
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if memsaver.gpu_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no usable GPU"))


def fails(error: Any, text: str, call: Callable[..., object], *arguments: object, **named: object) -> None:
    """Expects a call to raise `error`, a type or several, with `text` (a regular expression) in its message."""
    with pytest.raises(error, match=text or None):
        call(*arguments, **named)


def python(program: str, package: Path | None = None, library: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, because pytest has threads, and forking with threads is unsafe; by default with
    this package and library.
    """
    folder = package or Path(memsaver.__file__).parent
    path = os.pathsep.join(filter(None, [str(folder.parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "MEMSAVER_LIBRARY": library or memsaver.library_path()}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=120)
