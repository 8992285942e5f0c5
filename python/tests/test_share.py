"""Processes that share a simulated device: room, publications, and what is refused."""

from __future__ import annotations

import ctypes
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
from memsaver import Misuse, Saver, Share, Unavailable


class Place:
    """A folder, and a machine of its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        machine = f"py-{os.getpid()}-{folder.parent.name[:40]}"
        self.where: dict[str, Any] = {"device": "host", "host_capacity": 64 * MIB, "host_machine": machine}

    def share(self, name: str, **options: Any) -> Share:
        return Share(name=name, folder=self.folder, answer_within=3, host_granularity=1 << 16, **self.where, **options)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path / "share")
    gc.collect()  # savers that only cycles keep: the last one removes the machine


@pytest.fixture
def member(place: Place) -> Iterator[tuple[Share, Saver]]:
    with place.share("a") as share, Saver(share=share) as saver:
        yield share, saver


def test_weights_outlive_their_publisher(place: Place, member: tuple[Share, Saver]) -> None:
    share, saver = member
    with place.share("engine") as engine, Saver(share=engine) as publisher:
        q = publisher.buffer((256, 256), "<f4", "weights")
        scales = publisher.buffer(16, "<f4", "state")
        q.memory()[:] = bytes(range(256)) * 1024
        scales.memory()[:] = bytes(64)
        ranges = {"q": q, "scales": (scales.pointer, 64)}
        hash = engine.publish("model", publisher, "weights", ranges, version="1", copied=["scales"])
        fails(Unavailable, "has the hash", share.attach, "model", saver, hash=hash ^ 1)
        model = share.attach("model", saver, version="1", hash=hash)
    assert (model.tag, model.hash, list(model)) == ("model@1", hash, ["q", "scales"])
    array = numpy.asarray(model.view("q", (256, 256), "<f4"))
    assert array.tobytes() == bytes(range(256)) * 1024
    assert not array.flags.writeable
    assert model["q"].memory().readonly
    assert dict(model)["q"].bytes == 256 * 1024
    own = numpy.asarray(model.view("scales", dtype="<f4"))
    assert own.shape == (16,)
    own[:] = 2.5
    with pytest.raises(KeyError, match="nothing has the name"):
        model["v"]
    fails(Misuse, "has 64 bytes, not 68", model.view, "scales", 17, "<f4")
    fails(Misuse, "has 64 bytes, not a whole number of '<c24'", model.view, "scales", dtype="<c24")
    model.verify()
    saver.pause(model.tag)
    fails(Misuse, "paused", model["q"].memory)
    saver.resume(model.tag)
    assert own.tolist() == [2.5] * 16
    share.withdraw("model")
    fails(Unavailable, "nothing is", share.attach, "model", saver)
    model.drop()
    for _ in range(8):
        saver.allocate(256 << 10, "others")  # mostly at the addresses of the model
    fails(Misuse, "dropped", model["q"].memory)
    fails(Misuse, "dropped", model.verify)


def test_lending(place: Place) -> None:
    """It gives room, and lives with its share or its own end."""
    lent: list[tuple[str, ...]] = []
    other = place.share('an "other"\n')
    lender = Saver(share=other)
    lender.arena("idle", memsaver.HostBackup(), evictable=True).allocate(48 << 20)
    lender.add_hook(memsaver.Moment.BEFORE_PAUSE, lambda event: lent.append(event.tags))
    other.lend(lender)
    with other.lend(lender) as lending:
        gc.collect()
    lending.end()
    with other.lend(lender):
        assert len(other._lendings) == 2  # what has ended is not kept
    with place.share("taker", priority=1, floor=MIB, ceiling=60 * MIB) as share, Saver(share=share) as saver:
        assert saver.info().free_bytes <= 16 * MIB  # of one device
        saver.allocate(40 * MIB, "cache")
        assert lent == [("idle",)]
        members = {member.name: member for member in share.members()}
        assert members['an "other"\n'].lends
        own = members["taker"]
        assert own == memsaver.Member("taker", os.getpid(), 1, MIB, 60 * MIB, own.held_bytes)
        held = memsaver.format_bytes(own.held_bytes)
        assert str(own) == f"taker (process {os.getpid()}): {held} held, priority 1, floor 1.00 MiB, ceiling 60.00 MiB"
        other.close()
        assert [member.lends for member in share.members()] == [False, False]  # the saver is a member still
        del other, lender
        gc.collect()
        assert [member.name for member in share.members()] == ["taker"]


def test_what_cannot_be(place: Place) -> None:
    place.folder.mkdir(mode=0o755)
    fails(Unavailable, str(place.folder), place.share, "a")
    place.folder.chmod(0o700)
    share = place.share("a")
    saver = Saver(share=share)
    w, freed = (saver.buffer(1000, tag=tag) for tag in ("weights", "other"))
    freed.free()
    fails(Misuse, "has been freed", share.publish, "m", saver, "weights", {"w": w, "v": freed}, copied="v")
    share.publish("model", saver, "weights", {"w": w})
    model = share.attach("model", saver)  # in the same process
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
        fails(Misuse, "share (is null|was closed)", use)
    assert model["w"].memory()[0] == 0  # the saver is a member still
    saver.close()
    fails(Misuse, "dropped", model["w"].memory)


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
    fails(Misuse, "'w' is not contiguous", share.publish, "m", saver, "weights", {"w": Tensor(weight.array.T)})
    cached = saver.buffer(100, tag="weights")  # what a framework caches: it is told to let go
    saver._leavers.append(lambda of, ends: cached.free() if ends("weights") and not ends("other") else None)
    empty = Tensor(numpy.zeros((0, 3)))
    share.publish("model", saver, "weights", {"w": weight, "empty": empty})
    model = share.attach("model", saver)
    fails(Misuse, "a saver on a GPU", memsaver.torch.tensors, model, {"w": weight})
    saver._on_gpu = True
    found = memsaver.torch.tensors(model, {"w": weight, "empty": empty})
    assert found["empty"].array.shape == (0, 3)
    assert found["w"].array.tolist() == weight.array.tolist()
    assert found["w"].data_ptr() != weight.data_ptr()
    fails(Misuse, "64 bytes", memsaver.torch.tensors, model, {"w": Tensor(numpy.zeros(3))})
    saver._on_gpu = False
