"""Tests on a GPU. Requires only the driver; the PyTorch tests are skipped without PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import MIB

from memsaver import HostBackup, Saver

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch", reason="no PyTorch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    return torch


def test_backups_and_their_bytes() -> None:
    with Saver(0) as saver:
        assert saver.info().on_gpu
        saver.arena("a", HostBackup())
        pointer = saver.allocate(MIB, "a")
        saver.pause("a")
        saver.write_backup(pointer, bytes(range(256)) * 4096)
        saver.resume("a")
        saver.pause("a")
        assert saver.read_backup(pointer, MIB) == bytes(range(256)) * 4096
        saver.resume("a")
        assert hasattr(saver.view(pointer, MIB), "__cuda_array_interface__")


def test_arrays_in_pytorch(torch: Any) -> None:
    with Saver(0) as saver:
        saver.arena("a", HostBackup())
        buffer = saver.buffer((1024, 1024), "<f4", "a")
        tensor = torch.as_tensor(buffer, device="cuda:0")
        assert tensor.data_ptr() == buffer.pointer
        tensor.fill_(3)
        saver.pause("a", streams=[torch.cuda.current_stream()])
        saver.resume("a")
        assert bool((tensor == 3).all())


def test_tensors_of_a_region(torch: Any) -> None:
    import memsaver.torch

    with Saver(0) as saver:
        saver.arena("weights", HostBackup())
        with memsaver.torch.region(saver, "weights"):
            weights = torch.randn(4096, 4096, device="cuda:0")
        outside = torch.randn(16, device="cuda:0")
        assert saver.owns(weights.data_ptr())
        assert not saver.owns(outside.data_ptr())
        sums = weights.sum().item()
        assert saver.pause("weights").released_bytes >= 64 * MIB
        saver.resume("weights")
        assert weights.sum().item() == sums
        del weights
        memsaver.torch.release(saver, "weights")
        assert saver.totals("weights").blocks == 0
