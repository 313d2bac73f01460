"""RePo: a world model without reconstruction, whose posterior takes a limited amount of information from the image.

RePo: Resilient Model-Based Reinforcement Learning by Regularizing Posterior Predictability, 2023, section 3.

    minimise  E[-log p(r | s)] + beta (KL_bal(posterior || prior) - epsilon)   over the world model
    maximise  beta (KL_bal(posterior || prior) - epsilon)                      over beta = exp(l) > 0

with KL_bal = a KL(sg(posterior) || prior) + (1 - a) KL(posterior || sg(prior)), a = n / (n + 1), so that the prior
learns n times as fast as the posterior. What the reward does not need costs information and is left out.

- the forward pass with the multiplier beta: `ConstrainedStates`; the cap in the model's loss: `InformationCap`
- the step of beta on the information of that pass: `RecordedInformation`, `InformationDual`
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.learners.phases.observed_states import ObservedStates
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


def prior_share(speed: float) -> float:
    """a = n / (n + 1): the share of the gradient of the KL divergence that trains the prior n times as fast."""
    check_positive("ConstrainedStates", prior_speed=speed)
    return speed / (speed + 1)


class ConstrainedStates(ObservedStates):
    """RePo's forward pass: states and reward predictions without a decoder, and extra["log_multiplier"] = log beta.

    Args:
        prior_speed: n, how many times as fast the prior learns as the posterior.
        multiplier: name of the Lagrange multiplier beta.
        kwargs: as of `ObservedStates`, without decoder and balance.
    """

    def __init__(self, prior_speed: float = 5.0, multiplier: str = "information_multiplier", **kwargs: Any):
        super().__init__(decoder=None, balance=prior_share(prior_speed), **kwargs)
        self.multiplier = multiplier

    def gives(self) -> frozenset[str]:
        return super().gives() | {"log_multiplier"}

    def models(self) -> frozenset[str]:
        return super().models() | {self.multiplier}

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        out = super().__call__(batch, ctx)
        return replace(out, extra={**out.extra, "log_multiplier": ctx.models[self.multiplier].log})


class RecordedInformation(Output):
    """The column `information` of the model's step and log beta, for the step of the multiplier.

    Args:
        multiplier: name of the Lagrange multiplier beta.
    """

    def __init__(self, multiplier: str = "information_multiplier"):
        self.multiplier = multiplier

    def gives(self) -> frozenset[str]:
        return frozenset({"information", "log_multiplier"})

    def models(self) -> frozenset[str]:
        return frozenset({self.multiplier})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        information = batch["information"]
        nothing = torch.zeros_like(information)
        extra = {"information": information, "log_multiplier": ctx.models[self.multiplier].log}
        return PolicyOutput(nothing, nothing, extra=extra)


@dataclass(frozen=True)
class _InformationTerm(Term):
    """Base class of the two terms of KL_bal - epsilon.

    Args:
        epsilon: information about an observation that is allowed, in nats.
    """

    epsilon: float = 3.0

    def __post_init__(self) -> None:
        check_positive("information", epsilon=self.epsilon)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"information", "log_multiplier"})  # [N, T], [1]

    def _violation(self, out: PolicyOutput, batch: Batch) -> Tensor:
        """KL_bal - epsilon [N, T], 0 outside the mask."""
        return zero_outside(out.extra["information"] - self.epsilon, batch["action_mask"])


@dataclass(frozen=True)
class InformationCap(_InformationTerm):
    """RePo's cap: beta (KL_bal - epsilon), beta detached."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return out.extra["log_multiplier"].detach().exp() * self._violation(out, batch)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """nats: the KL divergence; beta: the multiplier."""
        mask = batch["action_mask"]
        beta = out.extra["log_multiplier"].detach().exp().expand(mask.shape)
        return {"nats": zero_outside(out.extra["information"], mask), "beta": beta}


@dataclass(frozen=True)
class InformationDual(_InformationTerm):
    """RePo's dual loss: -log beta (KL_bal - epsilon), the KL divergence detached; beta rises above the cap."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -out.extra["log_multiplier"] * self._violation(out, batch).detach()
