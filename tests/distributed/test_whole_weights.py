"""Networks in shards are refused by name where processes would wait for each other."""

import pytest
import torch
from torch import nn

from mmrl.distributed.whole_weights import refuse_sharded


class Shard(nn.Parameter):
    """A parameter with the method of a sharded one."""

    def to_local(self):
        return self


def test_shards_are_refused_and_whole_weights_are_not():
    network = nn.Linear(2, 1)
    refuse_sharded(network, "rollout.guide")
    network.weight = Shard(torch.zeros(1, 2))
    with pytest.raises(NotImplementedError, match=r"rollout\.guide calls Linear.*strategy=ddp"):
        refuse_sharded(network, "rollout.guide")
