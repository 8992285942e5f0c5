"""Finds libmemsaver, loads it once, and converts its errors to exceptions. Independent of savers."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from pathlib import Path

from memsaver import _abi, errors

#: An environment variable that names the library; it takes precedence over all locations searched.
VARIABLE = "MEMSAVER_LIBRARY"
#: The oldest library version that this package supports: 0.3.0.
OLDEST = 300
NAMES = ("libmemsaver.so.0.3", "libmemsaver.so")
HOW = (
    "`pip install ./python` in a checkout of memsaver installs the package with it. To build it alone:\n"
    "    cmake -B build && cmake --build build --target memsaver_c\n"
    f"and, if the package is used from elsewhere, set {VARIABLE} to the path of libmemsaver.so."
)


def _in_checkout(root: Path) -> list[Path]:
    """Finds libraries in build folders of the checkout, the newest first."""
    if not (root / "include" / "memsaver" / "c.h").is_file():
        return []
    found = [
        path for folder in ("build*", "build*/*", "build*/*/*") for name in NAMES for path in root.glob(f"{folder}/{name}")
    ]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def _candidates() -> Iterator[str]:
    package = Path(__file__).resolve().parent
    yield from (str(package / name) for name in NAMES if (package / name).is_file())
    yield from map(str, _in_checkout(package.parents[1]))
    yield from NAMES  # the system's loader: LD_LIBRARY_PATH, /etc/ld.so.conf, the default folders


def _load(candidate: str) -> ctypes.CDLL:
    """Loads a candidate. Raises OSError with the reason if it cannot be used."""
    library = ctypes.CDLL(candidate)
    try:
        _abi.declare(library)
    except AttributeError as missing:  # memsaver::compiled, built as a shared library, has the same name
        raise OSError(f"{candidate}: this is not memsaver's C interface ({missing})") from None
    if library.memsaver_version() < OLDEST:
        raise OSError(f"{candidate}: memsaver {library.memsaver_version_text().decode()}; 0.3.0 or newer is required")
    return library


def library() -> ctypes.CDLL:
    """Returns libmemsaver, which is loaded at the first call. Raises `Unavailable` with the locations searched and
    instructions to build it.
    """
    return _found()[0]


def library_path() -> str:
    """Returns the path of the loaded library, or the name by which the system's loader found it."""
    return _found()[1]


@functools.cache
def _found() -> tuple[ctypes.CDLL, str]:
    refused: dict[str, None] = {}
    named = os.environ.get(VARIABLE)
    for candidate in [named] if named else _candidates():
        try:
            return _load(candidate), candidate
        except OSError as why:
            refused[f"    {why}"] = None
    raise errors.Unavailable("\n".join(["libmemsaver cannot be loaded:", *refused, HOW]))


def last_error(code: int) -> errors.Error:
    """Returns the exception for this thread's last error, with the result `code`."""
    said = _abi.text(library().memsaver_last_error())
    parts = _abi.Error()
    library().memsaver_get_last_error(ctypes.byref(parts))
    error = errors.BY_RESULT.get(code, errors.Error)(said)
    error.result = code
    error.driver_code = parts.driver_code
    error.driver_name = _abi.text(parts.driver_name)
    error.tag = _abi.text(parts.tag)
    if isinstance(error, errors.OutOfMemory):
        error.needed_bytes, error.free_bytes = parts.needed_bytes, parts.free_bytes
    return error
