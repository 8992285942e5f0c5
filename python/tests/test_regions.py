"""Regions: allocations without a tag."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from checks import fails

import memsaver
from memsaver import Saver


def test_of_an_arena(saver: Saver) -> None:
    arena = saver.arena("a")
    with arena.region(), saver.region(arena):
        saver.buffer(100).free()
    with Saver("host", host_capacity=1 << 24) as other, pytest.raises(memsaver.Misuse, match="another saver"):
        other.region(arena).__enter__()


def test_outside(saver: Saver) -> None:
    with saver.region("a"), saver.outside():
        plain = saver.allocate(100)
    saver.pause()
    assert saver.owns(plain)
    assert bytes(saver.view(plain, 100).memory()) is not None
    assert saver.totals("a").blocks == 0
    saver.free(plain)


def test_a_region_ends_with_an_exception_and_can_be_entered_again(saver: Saver) -> None:
    region = saver.region("a")
    with pytest.raises(KeyError), region:
        raise KeyError
    fails(memsaver.Misuse, "no open region", saver.allocate, 1)
    with region, saver.region("b"), region:
        saver.allocate(7)
    assert saver.totals("a").used_bytes == 7


def test_a_region_ends_where_it_began(saver: Saver) -> None:
    outer, inner = saver.region("outer"), saver.region("inner")
    outer.__enter__()
    with ThreadPoolExecutor() as threads, pytest.raises(memsaver.Misuse, match="on the thread that opened it"):
        threads.submit(outer.__exit__, None, None, None).result()
    inner.__enter__()
    fails(memsaver.Misuse, "before the regions around it", outer.__exit__, None, None, None)
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)


def test_what_is_no_tag_or_policy(saver: Saver) -> None:
    fails(TypeError, "tag must be a str", saver.region, b"a")
    fails(memsaver.Misuse, "null character", saver.region, "a\0b")
    fails(TypeError, "a policy must be", saver.arena, "a", "host")
    fails(memsaver.Misuse, "null character", saver.arena, "a", memsaver.FileBackup(directory="/tmp\0b"))
