"""Two problems small enough to enumerate, on which whatever makes choices likelier can be tried in milliseconds.

Bandit: arm a of 100 earns exp(-((a - 70) / 10)^2), and the policy that sampled prefers low arms. A batch holds every
arm once, weighted by how likely the sampling policy was to pull it, so that a gradient is an expectation.

Pairs: 12 arms; a batch holds every ordered pair, weighted by how often its first arm is preferred under Bradley-Terry.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Objective, Term

ARMS = 100
REWARD = torch.exp(-(((torch.arange(ARMS) - 70) / 10.0) ** 2)).double()
SAMPLER = -torch.arange(ARMS).double() / 40  # logits: arm 0 is 12 times as likely as arm 99
FEW = 12
WORTH = torch.linspace(-1, 1, FEW).double()
BETA = 0.5


def expected_reward(logits: Tensor) -> Tensor:
    return (logits.softmax(-1) * REWARD).sum()


def pulled(sampler: Tensor, advantages: Tensor, current: Tensor) -> Batch:
    """Every arm once, as one row of one choice."""
    behaviour = sampler.log_softmax(-1)
    importance_weights = (current.log_softmax(-1) - behaviour).exp()
    rows = torch.arange(len(sampler))
    return Batch(
        action=rows[:, None],
        action_mask=torch.ones(len(rows), 1, dtype=torch.bool),
        episode=rows,
        group=torch.zeros_like(rows),
        behavior_logprobs=behaviour[:, None],
        old_logprobs=current.log_softmax(-1)[:, None],
        ref_logprobs=behaviour[:, None],
        importance_weights=importance_weights[:, None],
        advantages=advantages[:, None],
        loss_weights=behaviour.exp()[:, None],
        segment=torch.ones(len(rows), 1, dtype=torch.long),  # actions without a thought
        min_p_probs=torch.zeros(len(rows), 1),  # no choice is held up, so that Lp-Reg is a clipped surrogate
    )


def scored(logits: Tensor, batch: Batch) -> PolicyOutput:
    log_p = logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum().expand(batch.rows, 1)
    return PolicyOutput(log_p[batch["action"]], entropy)


def gradient(term: Term, logits: Tensor, batch: Batch) -> Tensor:
    """d loss / d logits."""
    logits = logits.detach().clone().requires_grad_()
    loss, _ = Objective({"term": term})(scored(logits, batch), batch)
    return torch.autograd.grad(loss, logits)[0]


def pairs(reference: Tensor, often: Tensor | None = None) -> Batch:
    """Every ordered pair of different arms, weighted by how often it is shown times P(first preferred)."""
    first, second = (~torch.eye(FEW, dtype=torch.bool)).nonzero().T
    shown = torch.ones(len(first)).double() if often is None else often[first] * often[second]
    share = shown * torch.sigmoid(WORTH[first] - WORTH[second])
    arms = torch.stack([first, second], dim=1).flatten()
    rows = len(arms)
    return Batch(
        action=arms[:, None],
        action_mask=torch.ones(rows, 1, dtype=torch.bool),
        group=torch.arange(rows) // 2,
        episode=torch.arange(rows),
        preference=torch.tensor([1.0, -1.0]).repeat(rows // 2),
        ref_logprobs=reference.log_softmax(-1)[arms][:, None],
        loss_weights=(share / share.sum() / 2).repeat_interleave(2)[:, None],
    )
