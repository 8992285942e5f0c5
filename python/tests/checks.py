"""What most test files need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memsaver


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
