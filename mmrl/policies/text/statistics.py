"""Statistics of a choice's distribution, computed from the logits of one forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from mmrl.ops.choice import MASKED_LOGIT
from mmrl.ops.logprob import precision


class ChoiceStatistic(ABC):
    """Numbers of each choice from its logits and the chosen id, with gradient.

    Terms and annotators read them from `extra` under the name in `policy.statistics`. The logits [N, T, V] are the
    largest tensor of a training step. A statistic of one number per choice, [N, T], saves keeping them.
    """

    @abstractmethod
    def measure(
        self,
        logits: Tensor,  # [N, T, V]
        temperature: Tensor,  # [N]
        action: Tensor,  # [N, T] ids
    ) -> Tensor: ...  # [N, T] or [N, T, ...]


class Statistic(ChoiceStatistic):
    """Numbers of each choice from its logits alone, whichever id was chosen."""

    @abstractmethod
    def __call__(
        self,
        logits: Tensor,  # [N, T, V]
        temperature: Tensor,  # [N]
    ) -> Tensor: ...  # [N, T] or [N, T, ...]

    def measure(self, logits: Tensor, temperature: Tensor, action: Tensor) -> Tensor:
        return self(logits, temperature)


class LogSurprise(Statistic):
    """Logarithm of -mean_v log p(v), in nats, over all tokens v that may be chosen: [N, T].

    It moves with all logits, where the log-probs of choices and the entropies of a decided policy stay near 0. The
    logarithm makes differences relative to the size of the logits, as those of rounding are.
    """

    def __call__(self, logits: Tensor, temperature: Tensor) -> Tensor:
        logits = logits.to(precision(logits))
        allowed = logits > MASKED_LOGIT / 2  # half of it, since low precision rounds it up
        log_p = (logits / temperature[:, None, None]).log_softmax(-1)
        return (-log_p.masked_fill(~allowed, 0.0).sum(-1) / allowed.sum(-1)).log()


class ChoiceLogprobs(Statistic):
    """Log-probabilities of all tokens of the vocabulary at each choice, in nats, for losses such as `GKDLoss`.

    They take N * T * V fp32 numbers for each micro-batch: raise trainer.accumulate_grad_batches when memory runs out.
    """

    def __call__(self, logits: Tensor, temperature: Tensor) -> Tensor:
        return (logits.to(precision(logits)) / temperature[:, None, None]).log_softmax(-1)
