"""PRIME: implicit process rewards from a reward model that is trained online on outcomes.

PRIME: Process Reinforcement through Implicit Rewards, 2025, section 3, arXiv:2502.01456.

- implicit process reward q_t = log phi(y_t) - log ref(y_t): `implicit_reward`
- cross-entropy of sigmoid(beta sum_t q_t) against the outcome (equation 5): `OutcomeCrossEntropy`
- leave-one-out returns of process and outcome rewards: `leave_one_out_process`; as advantages: `ProcessAdvantage`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mmrl.annotators.base import Annotator
from mmrl.annotators.gae import Timeline
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, zero_outside


def implicit_reward(
    logprobs: Tensor,  # [N, T] nats, of the reward model
    reference: Tensor,  # [N, T] nats
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T] nats, 0 outside the mask
    """Implicit process reward q_t = log phi(y_t) - log ref(y_t): the part of token t in the reward sum_t q_t.

    Source: Free Process Rewards without Process Labels, 2024, arXiv:2412.01981.
    """
    return zero_outside(logprobs - reference, mask)


def leave_one_out_process(
    process: Tensor,  # [E, H]
    outcome: Tensor,  # [E]
    mask: Tensor,  # [E, H] bool
    group: Tensor,  # [E] ids
    weights: tuple[float, float] = (5.0, 5.0),
) -> Tensor:  # [E, H], 0 outside the mask
    """Return to go of token rewards and a final outcome, each minus the leave-one-out baseline of its group.

    Tokens get q_t K / (K - 1) - sum_j mean_t q_jt / (K - 1), the last one o K / (K - 1) - sum_j o_j / (K - 1) besides,
    with the weights of process and outcome. A group of one has no baseline: 0.
    Source: Process Reinforcement through Implicit Rewards, 2025, section 3, arXiv:2502.01456.
    """
    # (episodes,) size of the group and the factor K / (K - 1), which is 0 in a group of one
    _, index, size = group.unique(return_inverse=True, return_counts=True)
    others = (size - 1).clamp(min=1)[index].to(process.dtype)
    factor = torch.where(size[index] > 1, size[index] / others, 0.0)

    def total(value: Tensor) -> Tensor:
        return value.new_zeros(len(size)).index_add(0, index, value)[index] / others * (factor > 0)

    # (episodes, choices) token rewards and (episodes,) outcome, each minus its leave-one-out baseline
    tokens = process * factor[:, None] - total(masked_mean(process, mask, dim=1))[:, None]
    ends = outcome * factor - total(outcome)
    reward = weights[0] * zero_outside(tokens, mask)
    # (episodes, choices) return to go: the outcome at the end reaches every choice undiscounted
    to_go = reward.flip(1).cumsum(1).flip(1) + weights[1] * ends[:, None]
    return zero_outside(to_go, mask)


@dataclass(frozen=True)
class OutcomeCrossEntropy(Term):
    """Cross-entropy of sigmoid(scale sum_t q_t) against the outcome, per choice of a row; q are log-ratios.

    Rows are whole answers, rewards lie in [0, 1]. A row's cross-entropy is divided by its number of choices: with
    weights of a token mean every answer then counts alike, as in the paper, and the sum is the mean cross-entropy
    divided by the mean length. Source: Process Reinforcement through Implicit Rewards, 2025, equation 5,
    arXiv:2502.01456.

    Args:
        model: one of `model.auxiliary_models`.
        scale: logits per nat.
        reference: column of the reference's log-probs.
    """

    model: str = "reward"
    scale: float = 0.05
    reference: str = "ref_logprobs"

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "episode_reward", self.reference})

    def others(self) -> frozenset[str]:
        return frozenset({self.model})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        outcome = batch["episode_reward"].clamp(0, 1)
        choices = batch["action_mask"].sum(1).clamp(min=1)
        return F.binary_cross_entropy_with_logits(self._logit(out, batch), outcome, reduction="none") / choices

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """accuracy: of the outcome that is more likely by the model."""
        return {"accuracy": ((self._logit(out, batch) > 0) == (batch["episode_reward"] > 0.5)).float()}

    def _logit(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logprobs = out.other(self.model, "outcome_cross_entropy").logprobs
        return self.scale * implicit_reward(logprobs, batch[self.reference], batch["action_mask"]).sum(1)


@dataclass(frozen=True)
class ProcessAdvantage(Annotator):
    """Return to go of implicit token rewards and of the episode's reward, each against the other episodes, whitened.

    Mean 0 and sample variance 1 over the choices of all ranks. The token rewards are log-ratios of a model to the
    reference, as `Logprobs` and `reference` write them, times the scale with which that model was trained: the reward
    of a token is r_t = beta q_t with the beta of the model's cross-entropy.
    Source: Process Reinforcement through Implicit Rewards, 2025, section 3, arXiv:2502.01456.

    Args:
        process: weight of the token rewards.
        outcome: weight of the episode's reward.
        scale: beta, logits per nat, the `scale` of the `OutcomeCrossEntropy` that trains the model.
        column: log-probs of the model.
        reference: log-probs of the reference.
    """

    process: float = 5.0
    outcome: float = 5.0
    scale: float = 0.05
    column: str = "reward_logprobs"
    reference: str = "ref_logprobs"

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "episode", "step", "episode_reward", self.column, self.reference})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        timeline = Timeline(batch, mask)
        token = self.scale * implicit_reward(batch[self.column], batch[self.reference], mask)
        # (episodes,) outcome and group of each episode, from any of its rows
        zeros = torch.zeros(len(timeline.ids), dtype=torch.long)
        outcome = zeros.float().scatter(0, timeline.episode, batch["episode_reward"].float())
        group = zeros.scatter(0, timeline.episode, batch["group"])
        to_go = leave_one_out_process(timeline.pack(token), outcome, timeline.mask, group, (self.process, self.outcome))
        return batch.with_columns(advantages=_whiten(timeline.unpack(to_go), mask, ctx))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Metric: accuracy of the reward model, whose sign of sum_t q_t predicts an outcome above 1/2."""
        mask = batch["action_mask"]
        prediction = implicit_reward(batch[self.column], batch[self.reference], mask).sum(1) > 0
        right = (prediction == (batch["episode_reward"] > 0.5))[mask.any(1)]
        hits, count = map(sum, zip(*ctx.collector.gather([(int(right.sum()), len(right))])))
        return {"agreement": hits / count} if count else {}


def _whiten(value: torch.Tensor, mask: torch.Tensor, ctx: Context) -> torch.Tensor:
    inside = value[mask].double()
    parts = ctx.collector.gather([(len(inside), float(inside.sum()), float(inside.square().sum()))])
    count, total, squares = map(sum, zip(*parts))
    mean = total / max(count, 1)
    variance = max(squares - count * mean**2, 0.0) / max(count - 1, 1)
    return zero_outside(((value - mean) / (variance**0.5 + 1e-8)).float(), mask)
