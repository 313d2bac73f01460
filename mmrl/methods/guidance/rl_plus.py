"""RL-PLUS: policy-gradient loss of demonstrations without behaviour probabilities, by multiple importance sampling.

RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with Hybrid-policy Optimization,
2025, arXiv:2508.00222.

- multiple importance sampling, 2 p / (p_old + omega): `mixture_ratio`
- weight (1 - p)^power of unlikely tokens: `unlikely`
- the loss -A ratio (1 - p)^power: `MixtureSurrogate`
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


def mixture_ratio(
    logprobs: Tensor,  # [N, T] nats, with gradient
    old: Tensor,  # [N, T] nats
) -> Tensor:  # [N, T]
    """Importance ratio 2 p / (p_old + omega) with omega = (p_old + 1) / 2, the estimate of the behaviour policy.

    Whoever it was is taken to lie half way between the old policy and one that is sure of it, and p is compared with
    the mean of the old policy and that guess: at most 4 p / (3 p_old + 1) <= 4, however unlikely the choice was.
    Source: RL-PLUS, 2025, arXiv:2508.00222, multiple importance sampling.
    """
    p, p_old = logprobs.exp(), old.exp()
    return 2 * p / (p_old + (p_old + 1) / 2)


def unlikely(
    logprobs: Tensor,  # [N, T] nats
    power: float,
) -> Tensor:  # [N, T], no gradient
    """RL-PLUS exploration weight (1 - p)^power: unlikely choices count more. Source: as `mixture_ratio`."""
    return (1 - logprobs.detach().exp()).clamp(min=0) ** power


@dataclass(frozen=True)
class MixtureSurrogate(Term):
    """RL-PLUS surrogate -A ratio (1 - p)^power, with the bounded ratio of `mixture_ratio`; not clipped.

    Args:
        power: how much less likely choices count than unlikely ones; 0 for alike.
        old: column of the policy's log-probs before the update.
    """

    power: float = 0.5
    old: str = "old_logprobs"

    def __post_init__(self) -> None:
        check_at_least(0, "mixture_surrogate", power=self.power)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "advantages", self.old})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        ratio, weight, advantages = self._parts(out, batch)
        return -advantages * ratio * weight

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio; unlikely: the factor of choices that the policy would not make by itself."""
        ratio, weight, _ = self._parts(out, batch)
        return {"ratio": ratio, "unlikely": weight}

    def _parts(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        mask = batch["action_mask"]
        new, old = zero_outside(out.logprobs, mask), zero_outside(batch[self.old], mask)
        return mixture_ratio(new, old), unlikely(new, self.power), zero_outside(batch["advantages"], mask)
