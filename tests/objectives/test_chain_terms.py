"""PPO over denoising steps by hand."""

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.imitation_chain import DenoisingLoss
from mmrl.objectives.policy_chain import ChainSurrogate
from mmrl.ops.gaussian import normal_logprob
from tests.laws.example import Example

LAWS = [
    *(
        Example(ChainSurrogate(5, join, reduction, 0.1, 0.2, clip_dual))
        for join in ("step", "transition", "chain")
        for reduction in ("sum", "mean")
        for clip_dual in (None, 1.5)
    ),
    Example(ChainSurrogate(5, old="old_logprobs")),
    Example(DenoisingLoss()),
    Example(DenoisingLoss(power=1)),
]


@pytest.mark.parametrize("advantage, terms", [(2.0, [-2.2, -2.030226]), (-2.0, [2.210342, 2.030226])])
def test_every_denoising_step_has_a_ratio_and_all_have_one_advantage(advantage, terms):
    """x = .3 and .1, s = .5, means 0 become .1 and .05: log-ratios (x^2 - (x - m)^2) / (2 s^2) = .1 and .015.

    Ratios 1.105171 and 1.015113. Clipped at .1: min(2 u, 2.2) = 2.2 and 2.030226; for -2 the first is -2.210342.
    """
    x, old, new = (torch.tensor([values]) for values in ([0.3, 0.1], [0.0, 0.0], [0.1, 0.05]))
    width = torch.tensor(0.5)
    batch = Batch(
        action=x[..., None],
        action_mask=torch.ones(1, 2, dtype=torch.bool),
        behavior_logprobs=normal_logprob(x, old, width),
        advantages=torch.full((1, 2), advantage),
    )
    out = PolicyOutput(normal_logprob(x, new, width), torch.zeros(1, 2))
    term = ChainSurrogate(chunk=1, join="transition", clip_low=0.1, clip_high=0.1)
    assert term.metrics(out, batch)["ratio"][0].tolist() == pytest.approx([1.105171, 1.015113], abs=1e-6)
    assert term(out, batch)[0].tolist() == pytest.approx(terms, abs=1e-6)
