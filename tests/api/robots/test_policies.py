"""Policies that a robot asks: in this process, at a server, and guided by the chunk that is being played."""

import numpy as np
import pytest
import torch

from mmrl.api.robots.inference import ChunkQuery
from mmrl.api.robots.policies import EnginePolicy, GuidedPolicy, connect_server
from mmrl.core.errors import ConfigError
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.vla.chains.flow import FlowODE
from mmrl.policies.vla.small.flow import ActionFlowPolicy
from tests.api.serving.served import SMALL, Running, observation, small_policy


def flow():
    torch.manual_seed(0)
    return ActionFlowPolicy(chain=FlowODE(steps=10), action_dims=3, chunk=6, proprio_dims=5, **SMALL).eval()


def test_a_chunk_is_that_of_the_policy_itself():
    policy, raw = small_policy(), observation()
    inputs = policy.collate([policy.encode(raw)])
    expected = policy.act(inputs, Sampling(), Noise([7])).output[0]
    assert np.array_equal(EnginePolicy(policy, Sampling())(ChunkQuery(raw, 0, seed=7)), expected)


def test_a_server_gives_the_chunk_of_the_policy_in_this_process():
    pytest.importorskip("websockets")
    pytest.importorskip("msgpack")
    running = Running(small_policy())
    running.start()
    try:
        remote = connect_server(running.url, None, action_dims=3, decode="sample")
        query = ChunkQuery(observation(), 0, seed=7)
        chunk = remote(query)
        assert chunk.shape == (4, 3) and np.array_equal(chunk, EnginePolicy(small_policy(), Sampling())(query))
        with pytest.raises(ConfigError, match="dimensions"):
            connect_server(running.url, None, action_dims=7)(query)
    finally:
        running.stop()


def test_a_guided_chunk_begins_as_the_old_one_goes_on():
    """Of 6 actions 2 were executed, and 2 more will be: the first two are held to the old chunk, the last two free."""
    policy = GuidedPolicy(flow(), Sampling(decode="sample"), limit=5)
    free = GuidedPolicy(flow(), Sampling(decode="sample"), limit=0)
    previous = np.full((4, 3), 0.3, np.float32)
    query = ChunkQuery(observation(), 2, 7, previous, executed=2, delay=2)
    distances = [np.abs(each(query)[:2] - 0.3).mean() for each in (policy, free)]
    assert distances[0] < 0.1 * distances[1]
    without = ChunkQuery(observation(), 0, 7)
    assert np.allclose(policy(without), free(without)) and np.allclose(free(query), free(without))


def test_a_policy_without_a_flow_is_not_guided():
    with pytest.raises(ConfigError, match="guide=true guides the denoising of a flow, but ActionTokenPolicy"):
        GuidedPolicy(small_policy(), Sampling())
