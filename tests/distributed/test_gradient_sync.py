"""`no_sync` leaves the gradients of a minibatch's first micro-batches on the process."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close

from mmrl.distributed.fsdp2 import FSDP2


@pytest.fixture
def mesh(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("no_sync", [False, True])
def test_gradients_are_reduced_after_the_last_micro_batch(no_sync, mesh):
    model = nn.Linear(3, 2, bias=False)
    rows = torch.arange(6.0).view(2, 3)
    expected = rows.sum(0).expand(2, 3)
    strategy = SimpleNamespace(model=fully_shard(model, mesh=mesh), no_sync=no_sync)
    with FSDP2.block_backward_sync(strategy):
        model(rows[:1]).sum().backward()
    assert (model.weight.grad is None) == no_sync
    model(rows[1:]).sum().backward()
    assert_close(model.weight.grad.full_tensor(), expected)
