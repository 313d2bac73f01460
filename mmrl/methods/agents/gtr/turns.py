"""GTR: PPO with advantages, ratios and values per turn of a thought and an action.

- advantages of whole turns, with a bonus after GAE: `TurnAdvantage`
- the ratio of a turn, in which thoughts count less than actions: `ThoughtSurrogate`
- the value of the state in which a turn begins: `TurnValueLoss`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.annotators.gae import GAE, whiten
from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.value import SquaredValue
from mmrl.ops.masked import masked_sum, zero_outside
from mmrl.ops.policy_gradient import ImportanceSamplingLevel, log_ratio


def first_choice(value: Tensor, mask: Tensor) -> Tensor:
    """Entry [N] of each row's first choice, from [N, T]; 0 in a row without a choice."""
    return zero_outside(value, mask).gather(1, mask.long().argmax(dim=1, keepdim=True))[:, 0]


@dataclass(frozen=True)
class TurnAdvantage(Annotator):
    """GAE over turns, plus a bonus of each turn that is added to its return afterwards and not discounted.

    V is the value before the first token of a turn, so that a time step is a turn. R_t = GAE_t + V_t + b_t, b_t the sum
    of the turn's `token_rewards`; A_t = R_t - V_t, whitened over the sampled turns of all processes. The value function
    is fitted to R, the bonus included. Demonstrated rows have advantage 0. Source: GTR, 2025, arXiv:2503.08525, and its
    released code, weit123/GTR.

    Args:
        gamma: discount factor per turn.
        gae_lambda: of GAE.
        whiten: bring the advantages to mean 0 and variance 1 over turns.
    """

    gamma: float = 0.9
    gae_lambda: float = 0.95
    whiten: bool = True

    def __post_init__(self) -> None:
        self._gae  # noqa: B018 - its constructor checks the numbers

    @property
    def _gae(self) -> GAE:
        return GAE(self.gamma, self.gae_lambda)

    def reads(self) -> frozenset[str]:
        return self._gae.reads() | {"is_demo", "token_rewards"}

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages", "returns", "values"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask, values = batch["action_mask"], batch["values"].float()
        state = values if values.dim() == 1 else first_choice(values, mask)
        rows = Batch({name: batch[name] for name in self._gae.reads()}).with_columns(values=state)
        returns = self._gae(rows, ctx)["returns"] + masked_sum(batch["token_rewards"].float(), mask, dim=1)
        sampled = (mask.any(1) & ~batch["is_demo"])[:, None]
        advantages = (returns - state)[:, None]
        advantages = whiten(advantages, sampled, ctx) if self.whiten else zero_outside(advantages, sampled)
        advantages = zero_outside(advantages.expand(mask.shape), mask)
        return batch.with_columns(advantages=advantages, returns=returns, values=state)


@dataclass(frozen=True)
class ThoughtSurrogate(ClippedSurrogate):
    """Clipped surrogate of turns whose log-prob is k * (sum over the thought) + (sum over the action).

    ratio = exp(k sum_thought d + sum_action d), d = logprob - old, the same for all choices of the row: use the
    weighting SequenceMean. Choices of `segment` 0 are the thought, whose many tokens would otherwise decide the ratio.
    Source: GTR, 2025, arXiv:2503.08525, k = 0.5 and clip range 0.1 of its released code, weit123/GTR; Fine-Tuning Large
    Vision-Language Models as Decision-Making Agents via Reinforcement Learning, 2024, arXiv:2405.10292.

    Args:
        thought_coef: k.
        clip_low, clip_high, clip_dual, importance_sampling_level, old, importance_weights: as of ClippedSurrogate.
    """

    clip_low: float = 0.1
    clip_high: float = 0.1
    importance_sampling_level: ImportanceSamplingLevel = "joint"
    thought_coef: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("thought_surrogate", thought_coef=self.thought_coef)

    def reads(self) -> frozenset[str]:
        return super().reads() | {"segment"}

    def _pair(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        mask = batch["action_mask"]
        share = torch.where(batch["segment"] == 0, self.thought_coef, 1.0).to(out.logprobs.dtype)
        ratio = log_ratio(share * out.logprobs, share * batch[self.old], mask, self.importance_sampling_level).exp()
        return ratio, self.advantages(batch)


@dataclass(frozen=True)
class TurnValueLoss(SquaredValue):
    """Squared value error of the state in which a turn begins, per row: the value before the first token.

    `returns` and `values` are per row, as `TurnAdvantage` writes them. Source: as of TurnAdvantage.

    Args:
        clip: as of SquaredValue; 0.1 in the released code.
    """

    clip: float | None = 0.1

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if out.values is not None and out.values.dim() == 2:
            out = replace(out, values=first_choice(out.values, batch["action_mask"]))
        return super().__call__(out, batch)
