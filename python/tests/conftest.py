"""A saver on host memory for each test, and the reason why GPU tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator

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
