"""A denoising chain behind a state vector: scores of what was sampled, cloning, and saved settings."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.control.chains.denoising import DenoisingPolicy
from mmrl.policies.vla.chains import DDIM, FlowNoise, FlowSDE, MeanFlow


def build(chain=None, **given) -> DenoisingPolicy:
    torch.manual_seed(0)
    return DenoisingPolicy(chain or DDIM(steps=3, levels=6), 4, 2, chunk=3, hidden=[16], **given)


def states(rows: int) -> dict[str, torch.Tensor]:
    return {"state": torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))}


def test_learning_scores_what_was_sampled_and_every_transition_by_its_gaussian():
    """Transition by transition: the density of x_{i+1} around the mean that the network predicts at x_i."""
    policy = build(value_head=True)
    observation = states(5)
    action = policy.act(observation, Sampling(), Noise(range(5)))
    columns = {f"obs.{name}": column for name, column in observation.items()}
    ones = torch.ones(5)
    batch = Batch(columns, action=action.action, action_mask=action.action_mask, temperature=ones)
    out = policy(batch)
    assert_close(out.logprobs, action.behavior_logprobs, atol=1e-5, rtol=0)
    assert_close(out.values, action.values)
    x = action.action.unflatten(1, (4, 3))
    for i in range(3):
        index = torch.full((5,), i)
        prediction, _ = policy.predict((observation["state"],), x[:, i], policy.chain.time(index))
        mean, std = policy.chain.step(x[:, i], index, prediction, None, torch.ones(5, dtype=torch.bool))
        expected = torch.distributions.Normal(mean, std).log_prob(x[:, i + 1]).sum(-1)
        assert_close(out.logprobs.unflatten(1, (4, 3))[:, i + 1], expected, atol=1e-4, rtol=1e-5)


def test_cloning_a_chunk_makes_the_chain_end_there():
    policy = build(DDIM(steps=3, levels=12))
    target = np.array([[0.5, -0.5], [0.2, 0.0], [-0.8, 0.3]], np.float32)
    chunk = policy.encode_demonstration({}, target)[None].expand(32, -1, -1)
    columns = {"obs.state": torch.zeros(32, 4), "is_demo": torch.ones(32, dtype=torch.bool)}
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for number in range(150):
        seeds = torch.arange(32) + 32 * number
        mask = torch.ones(32, 3, dtype=torch.bool)
        batch = Batch(columns, action=chunk, action_mask=mask, temperature=torch.ones(32), row_seed=seeds)
        loss = policy(batch).extra["denoising_error"].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    done = policy.act({"state": torch.zeros(8, 4)}, Sampling(decode="mean"), Noise(range(8)))
    assert np.abs(np.stack(done.output) - target).max() < 0.25


def test_saved_settings_and_weights_are_read_again(tmp_path):
    policy = build()
    policy.save_pretrained(tmp_path)
    other = DenoisingPolicy(policy.chain, path=str(tmp_path))
    one, two = (each.act(states(3), Sampling(), Noise(range(3))).action for each in (policy, other))
    assert torch.equal(one, two)
    with pytest.raises(ValueError, match="velocity"):
        DenoisingPolicy(FlowSDE(), path=str(tmp_path))
    with pytest.raises(ValueError, match="chunk"):
        DenoisingPolicy(policy.chain, chunk=7, path=str(tmp_path))


@pytest.mark.parametrize("chain", [FlowNoise(), MeanFlow()], ids=str)
def test_chains_that_need_another_network_are_refused(chain):
    with pytest.raises(ValueError, match="take DDPM, DDIM, FlowSDE or CPS"):
        build(chain)


def test_missing_sizes_and_other_simulators_are_refused():
    with pytest.raises(ValueError, match=r"policy\.chunk"):
        DenoisingPolicy(DDIM(), 4, 2)
    box, chunks = spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (3, 2))
    build().check_spaces(box, chunks)
    with pytest.raises(ValueError, match="chunks of 3 x 2"):
        build().check_spaces(box, spaces.Box(-1, 1, (5, 2)))
    with pytest.raises(ValueError, match="state"):
        build().check_spaces(spaces.Box(-1, 1, (5,)), chunks)
