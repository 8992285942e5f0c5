"""Concurrent threads: a call releases the GIL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from checks import fails

import memsaver
from memsaver import HostBackup, Saver


def test_allocating_while_another_thread_pauses(saver: Saver) -> None:
    array = numpy.asarray(saver.buffer(1 << 20, tag="weights"))
    saver.arena("state", HostBackup())
    state = numpy.asarray(saver.buffer(1 << 20, tag="state"))
    array[:], state[:] = 1, 2
    end = threading.Event()

    def allocate() -> int:
        rounds = 0
        while not end.is_set() or rounds == 0:
            with saver.region("scratch"):
                pointers = [saver.allocate(1000 * i) for i in range(10)]
            for pointer in pointers:
                saver.free(pointer)
            rounds += 1
        return rounds

    with ThreadPoolExecutor() as threads:
        workers = [threads.submit(allocate) for _ in range(3)]
        try:
            for _ in range(20):
                saver.pause(["weights", "state"])
                saver.resume()
        finally:
            end.set()
        assert all(worker.result() > 0 for worker in workers)
    assert (state == 2).all()
    assert saver.totals("scratch").blocks == 0


def test_errors_are_each_threads_own(saver: Saver) -> None:
    """Also the exceptions of hooks."""
    for i in range(4):
        saver.allocate(1000, f"tag-{i}")

    def hook(event: memsaver.HookEvent) -> None:
        raise KeyError(event.tags[0])

    saver.add_hook(memsaver.Moment.BEFORE_PAUSE, hook)

    def pause(tag: str) -> None:
        for _ in range(50):
            fails(memsaver.Misuse, f'"unknown-{tag}"', saver.pause, f"unknown-{tag}")
            with pytest.raises(KeyError) as raised:
                saver.pause(tag)
            assert raised.value.args == (tag,)

    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(pause, f"tag-{i}") for i in range(4)]:
            done.result()
