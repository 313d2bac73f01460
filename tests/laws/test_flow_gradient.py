"""PPO over a flow whose velocity is known in closed form: its gradient is that of the expected reward."""

import numpy as np
import pytest
import torch
from torch import nn

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.objectives.policy_chain import ChainSurrogate
from mmrl.policies.vla.chains import FlowSDE
from mmrl.policies.vla.small.flow import ActionFlowPolicy

SIGMA, LEVEL, COUNT = 0.3, 0.5, 40_000


class Exact(nn.Module):
    """The velocity of a flow whose actions are N(mu, SIGMA^2), whatever the context; mu is what is learned."""

    def __init__(self):
        super().__init__()
        self.mu = nn.Parameter(torch.tensor(0.4))
        self.gradient_checkpointing = False

    def prefix(self, hidden, present):
        empty = hidden.new_zeros(len(hidden), 1)
        return empty, empty, present

    def forward(self, prefix, x, time, until=None):
        slope, shift = coefficients(time[:, None, None])
        return slope * x + shift * self.mu, None


def coefficients(time):
    """v = E[noise - action | x] = slope x + shift mu."""
    slope = (time - (1 - time) * SIGMA**2) / ((1 - time) ** 2 * SIGMA**2 + time**2)
    return slope, -(1 - time) * slope - 1


def steps(count: int, level: float) -> list[tuple[float, float]]:
    """(alpha, beta) of E[x'] = alpha x + beta mu: Euler steps of dx = [v + s^2 / (2 t) (x + (1 - t) v)] dt."""
    out = []
    for i in range(count):
        time, d = 1 - i / count, 1 / count
        s = level * np.sqrt(time / (1 - time if i else 1 / count))
        slope, shift = coefficients(time)
        pull = s**2 / (2 * time)
        out.append((1 - d * (slope + pull * (1 + (1 - time) * slope)), -d * (shift + pull * (1 - time) * shift)))
    return out


def expected(count: int, single: bool) -> float:
    """d E[x_K] / d mu; with one open transition what flows through that transition, on average over which it is."""
    noisy, after = steps(count, LEVEL), steps(count, 0.0 if single else LEVEL)
    parts = [noisy[k][1] * np.prod([alpha for alpha, _ in after[k + 1 :]]) for k in range(count)]
    return float(np.mean(parts) if single else np.sum(parts))


@pytest.mark.parametrize("join", ["transition", "chain"])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_the_gradient_is_that_of_the_expected_reward(count, single, join):
    torch.manual_seed(0)
    small = dict(hidden_size=8, layers=1, heads=1, intermediate_size=8, visual_tokens=1)
    sizes = dict(action_dims=1, chunk=1, proprio_dims=1)
    policy = ActionFlowPolicy(FlowSDE(count, LEVEL, single), freeze_vision=True, **small, **sizes).eval()
    policy.expert = Exact()
    raw = {"image": np.zeros((16, 16, 3), np.uint8), "proprio": np.zeros(1, np.float32), "instruction": "reach"}
    observation = policy.collate([policy.encode(raw)])
    owner = torch.zeros(COUNT, dtype=torch.long)
    action = policy.act_groups(observation, owner, Sampling(), Noise(range(COUNT)))
    reward = action.action[:, -1, 0]
    advantages = (reward - reward.mean())[:, None].expand(action.action_mask.shape)
    batch = Batch(
        action=action.action,
        behavior_logprobs=action.behavior_logprobs,
        action_mask=action.action_mask,
        temperature=torch.ones(COUNT),
        advantages=advantages,
        **{f"obs.{name}": column[owner] for name, column in observation.items() if name != "image"},
        **{"obs.visual": action.cached_features["visual"]},
    )
    # a chain's ratio is given to each of its choices: they share it
    share = batch["action_mask"] / (batch["action_mask"].sum(1, keepdim=True) if join == "chain" else 1) / COUNT
    loss = ChainSurrogate(1, join)(policy(batch), batch)
    slope = -torch.autograd.grad((loss * share).sum(), policy.expert.mu)[0].item()
    # the score has a std of about 1 to 2, the reward of 0.25: a standard error of at most 0.004
    assert slope == pytest.approx(expected(count, single), abs=0.015)
