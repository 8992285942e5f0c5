"""Processes that share a simulated device: room, publications, and what is refused."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import MIB, fails

import memsaver
import memsaver.torch
from memsaver import Saver, Share


@dataclasses.dataclass
class Place:
    """A folder, and a machine of its name."""

    folder: Path

    @property
    def where(self) -> dict[str, Any]:
        machine = f"py-{os.getpid()}-{self.folder.parent.name[:40]}"
        return {"device": "host", "host_capacity": 64 * MIB, "host_granularity": 1 << 16, "host_machine": machine}

    def share(self, name: str, **options: Any) -> Share:
        return Share(name=name, folder=self.folder, answer_within=3, **self.where, **options)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path / "share")
    gc.collect()  # savers that only cycles keep: the last one removes the machine


@pytest.fixture
def member(place: Place) -> Iterator[tuple[Share, Saver]]:
    with place.share("a") as share, Saver(share=share) as saver:
        yield share, saver


def test_weights_outlive_their_publisher(place: Place) -> None:
    with place.share("reader") as share, Saver(share=share) as saver:
        with place.share("engine") as engine, Saver(share=engine) as publisher:
            q = publisher.buffer((256, 256), "<f4", "weights")
            scales = publisher.buffer(16, "<f4", "state")
            q.memory()[:] = bytes(range(256)) * 1024
            scales.memory()[:] = bytes(64)
            ranges = {"q": q, "scales": (scales.pointer, 64)}
            hash = engine.publish("model", publisher, "weights", ranges, version="1", copied=["scales"])
            model = share.attach("model", saver, version="1", hash=hash)
        assert (model.tag, model.hash) == ("model@1", hash)
        array = numpy.asarray(model.view("q", (256, 256), "<f4"))
        assert array.tobytes() == bytes(range(256)) * 1024
        assert not array.flags.writeable
        assert model["q"].memory().readonly
        assert model["q"].bytes == 256 * 1024
        own = numpy.asarray(model.view("scales", dtype="<f4"))
        assert own.shape == (16,)
        own[:] = 2.5
        assert list(model) == model.keys() == ["q", "scales"]
        assert dict(model)["q"].bytes == 256 * 1024
        model.verify()
        saver.pause(model.tag)
        fails(memsaver.Misuse, "paused", model["q"].memory)
        saver.resume(model.tag)
        assert own.tolist() == [2.5] * 16
        share.withdraw("model")
        fails(memsaver.Unavailable, "nothing is", share.attach, "model", saver)
        model.drop()
        for _ in range(8):
            saver.allocate(256 << 10, "others")  # mostly at the addresses of the model
        fails(memsaver.Misuse, "dropped", model["q"].memory)
        fails(memsaver.Misuse, "dropped", model.verify)


def test_room(place: Place) -> None:
    lent: list[tuple[str, ...]] = []
    with place.share("other") as other, Saver(share=other) as lender:
        lender.arena("idle", memsaver.HostBackup(), evictable=True).allocate(48 << 20)
        lender.add_hook(memsaver.Moment.BEFORE_PAUSE, lambda event: lent.append(event.tags))
        other.lend(lender)
        with place.share("taker", priority=1, floor=MIB, ceiling=60 * MIB) as share, Saver(share=share) as saver:
            assert saver.info().free_bytes <= 16 * MIB  # of one device
            saver.allocate(40 * MIB, "cache")
            assert lent == [("idle",)]
            members = {member.name: member for member in share.members()}
            assert (members["other"].process, members["other"].lends) == (os.getpid(), True)
            own = members["taker"]
            assert own == memsaver.Member("taker", os.getpid(), 1, MIB, 60 * MIB, own.held_bytes)
            held = memsaver.format_bytes(own.held_bytes)
            assert str(own) == (f"taker (process {os.getpid()}): {held} held, priority 1, floor 1.00 MiB, ceiling 60.00 MiB")
            fails(memsaver.OutOfMemory, "taker", saver.allocate, 30 * MIB, "cache")


def test_a_lending_lives_with_its_share(place: Place) -> None:
    share = place.share("lender")
    saver = Saver(share=share)
    share.lend(saver)
    assert share.members()[0].lends
    with share.lend(saver) as lending:
        gc.collect()
    lending.end()
    with share.lend(saver):
        assert len(share._lendings) == 2  # what has ended is not kept
    assert share.members()[0].lends
    share.close()
    other = place.share('an "other"\n')
    members = {member.name: member for member in other.members()}  # the saver is a member still
    assert not members["lender"].lends
    del share, saver
    gc.collect()
    assert [member.name for member in other.members()] == ['an "other"\n']


def test_what_cannot_be(place: Place) -> None:
    place.folder.mkdir(mode=0o755)
    fails(memsaver.Unavailable, str(place.folder), place.share, "a")
    place.folder.chmod(0o700)
    with place.share("a") as share, Saver(share=share) as saver:
        w, freed = (saver.buffer(1000, tag=tag) for tag in ("weights", "other"))
        freed.free()
        fails(memsaver.Misuse, "has been freed", share.publish, "m", saver, "weights", {"w": w, "v": freed}, copied="v")
        hash = share.publish("m", saver, "weights", {"w": w}, version="1")
        fails(memsaver.Unavailable, "has the hash", share.attach, "m", saver, hash=hash ^ 1)
        model = share.attach("m", saver, hash=hash)  # in the same process
        with pytest.raises(KeyError, match="nothing has the name"):
            model["v"]
        fails(memsaver.Misuse, "has 1000 bytes, not 1004", model.view, "w", 251, "<f4")
        fails(memsaver.Misuse, "has 1000 bytes, not a whole number of '<c16'", model.view, "w", dtype="<c16")


def test_after_the_end(member: tuple[Share, Saver]) -> None:
    share, saver = member
    w = saver.buffer(1000, tag="weights")
    share.publish("model", saver, "weights", {"w": w})
    model = share.attach("model", saver)
    share.close()
    share.close()
    uses: list[Callable[[], object]] = [
        share.members,
        lambda: share.lend(saver),
        lambda: share.attach("model", saver),
        lambda: share.publish("b", saver, "weights", {"w": w}),
        lambda: share.withdraw("model"),
        lambda: Saver(share=share),
    ]
    for use in uses:
        fails(memsaver.Misuse, "share (is null|was closed)", use)
    assert model["w"].memory()[0] == 0  # the saver is a member still
    saver.close()
    fails(memsaver.Misuse, "dropped", model["w"].memory)


class Tensor(types.SimpleNamespace):
    """The part of a PyTorch tensor that is used here, over NumPy."""

    def __init__(self, array: Any) -> None:
        super().__init__(array=array, dtype=array.dtype, shape=array.shape)
        self.data_ptr: Callable[[], int] = lambda: int(array.ctypes.data)
        self.numel = lambda: array.size
        self.element_size = lambda: array.itemsize
        self.is_contiguous = lambda: array.flags.c_contiguous
        self.view = lambda to: Tensor(array.reshape(to) if isinstance(to, tuple) else array.view(to))


def test_tensors(member: tuple[Share, Saver], monkeypatch: pytest.MonkeyPatch) -> None:
    def as_tensor(view: memsaver.View, device: str) -> Tensor:
        assert device == "cuda:0"
        address, read_only = view.__cuda_array_interface__["data"]
        assert not read_only  # PyTorch would refuse it
        return Tensor(numpy.frombuffer(memoryview((ctypes.c_ubyte * view.bytes).from_address(address)), numpy.uint8))

    torch = types.ModuleType("torch")
    torch.as_tensor = as_tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    share, saver = member
    weight = Tensor(numpy.asarray(saver.buffer((4, 8), "<f2", "weights")))
    weight.array[:] = 1.5
    fails(memsaver.Misuse, "'w' is not contiguous", share.publish, "m", saver, "weights", {"w": Tensor(weight.array.T)})
    cached = saver.buffer(100, tag="weights")  # what a framework caches: it is told to let go
    saver._leavers.append(lambda of, ends: cached.free() if ends("weights") and not ends("other") else None)
    empty = Tensor(numpy.zeros((0, 3)))
    share.publish("model", saver, "weights", {"w": weight, "empty": empty})
    model = share.attach("model", saver)
    fails(memsaver.Misuse, "a saver on a GPU", memsaver.torch.tensors, model, {"w": weight})
    saver._on_gpu = True
    found = memsaver.torch.tensors(model, {"w": weight, "empty": empty})
    assert found["empty"].array.shape == (0, 3)
    assert found["w"].array.tolist() == weight.array.tolist()
    assert found["w"].data_ptr() != weight.data_ptr()
    fails(memsaver.Misuse, "64 bytes", memsaver.torch.tensors, model, {"w": Tensor(numpy.zeros(3))})
    saver._on_gpu = False
