"""Snapshots of weights: resets and moving averages of a frozen copy of the policy, and steps beyond the last round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from mmrl.core.errors import check_at_least, check_interval
from mmrl.distributed.whole_state import collect_tensors, shard_like
from mmrl.files.weight_names import current_names
from mmrl.learners.low_precision import LOW
from mmrl.transforms.base import find_readers


@torch.no_grad()
def interpolate(targets: Iterable[Tensor], sources: Iterable[Tensor], weight: float) -> None:
    """In place target <- target + weight (source - target): 1 copies, above 1 goes beyond the source."""
    for target, source in zip(targets, sources, strict=True):
        if weight == 1:
            target.copy_(source)  # without rounding
        else:
            target.add_(source.to(target.dtype) - target, alpha=weight)


@torch.no_grad()
def average_weights(models: Iterable[Mapping[str, Tensor]], weights: Iterable[float]) -> dict[str, Tensor]:
    """Weighted mean of state dicts with the same names; the weights are divided by their sum.

    Numbers that are no floating point, such as counts, are those of the first. Source: Model soups, 2022,
    arXiv:2203.05482; Kimi k1.5, 2025, model merging of long and short reasoning, section 2.4, arXiv:2501.12599.
    """
    states, factors = list(models), list(weights)
    if not states or len(states) != len(factors) or not sum(factors) > 0:
        raise ValueError(
            f"average_weights: {len(states)} models need as many weights with a positive sum, got {factors}"
        )
    if odd := sorted({name for state in states for name in set(state) ^ set(states[0])}):
        raise ValueError(f"average_weights: the models differ in {odd[:3]}; average models of one architecture")
    shares = [weight / sum(factors) for weight in factors]
    out = dict(states[0])
    for name, first in out.items():
        if first.is_floating_point():
            out[name] = torch.stack([share * state[name] for share, state in zip(shares, states)]).sum(0)
    return out


class _Frozen(L.Callback):
    """Base class: finds the frozen copy of the policy that a callback changes.

    Args:
        model: "reference" of model.reference=true.
    """

    def __init__(self, model: str = "reference"):
        self.model = model

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if self.model not in pl_module.models:
            raise ValueError(
                f"trainer.callbacks: {type(self).__name__} changes the model {self.model!r}, and the learner has "
                f"{sorted(pl_module.models)}; set model.reference=true"
            )
        if readers := self._find_readers(getattr(trainer, "datamodule", None)):
            raise ValueError(
                f"trainer.callbacks: {type(self).__name__} changes the model {self.model!r} while data.transforms."
                f"{readers[0]} reads it in the thread that collects, so that equal seeds give different runs; set "
                "data.staleness=0"
            )

    def _find_readers(self, data: Any) -> list[str]:
        """Names of the transforms that read the model in the thread of asynchronous collection."""
        if not getattr(data, "staleness", 0):
            return []
        return [name for name, _ in find_readers(data.transforms, {self.model})]

    def move(self, pl_module: Any, weight: float) -> None:
        """Move the copy towards the policy."""
        interpolate(pl_module.models[self.model].parameters(), pl_module.policy.parameters(), weight)


class ReferenceReset(_Frozen):
    """Set the reference to the policy at the end of every `every` iterations; 1 is the previous iterate.

    Checkpoints have the reference. Source: ProRL, 2025, reference policy reset, arXiv:2505.24864; BroRL, 2025,
    arXiv:2510.01180.

    Args:
        every: iterations between two resets.
        model: the frozen copy of the policy.
    """

    def __init__(self, every: int, model: str = "reference"):
        super().__init__(model)
        check_at_least(1, "reference_reset", every=every)
        self.every = every

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if (trainer.current_epoch + 1) % self.every == 0:
            self.move(pl_module, 1.0)


class ReferenceEMA(_Frozen):
    """Exponential moving average of the policy's weights as the reference: decay * reference + (1 - decay) * policy.

    After every optimiser step. It needs trained weights in fp32, and `capture=false` where whole update epochs would be
    captured. Source: RLP, 2025, section 2, arXiv:2510.01265, with 0.999.

    Args:
        decay: weight of the old average, in [0, 1).
        model: the frozen copy of the policy.
    """

    def __init__(self, decay: float = 0.999, model: str = "reference"):
        super().__init__(model)
        check_interval("reference_ema", "[0, 1)", decay=decay)
        self.decay, self._stepped = decay, False

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        super().on_fit_start(trainer, pl_module)
        if getattr(pl_module, "takes_update_epochs", False):
            raise ValueError(
                "trainer.callbacks: ReferenceEMA moves the reference after every optimiser step, and with capture=true "
                "the steps of an update epoch call no callbacks; set capture=false"
            )
        low = sorted({str(p.dtype) for p in pl_module.policy.parameters() if p.requires_grad and p.dtype in LOW})
        if low and self.decay > 0.5:
            raise ValueError(
                f"trainer.callbacks: ReferenceEMA keeps its average in the dtype of the weights, {low[0]}, in which "
                f"steps of {1 - self.decay:g} of a difference are lost by rounding; set policy.dtype=float32"
            )

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        self._stepped = True  # not after each micro-batch, nor after a minibatch without rows

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._stepped:
            self._stepped = False
            self.move(pl_module, 1 - self.decay)


class Extrapolation(L.Callback):
    """Go beyond a round's result at its end: theta + alpha (theta - result of the round before).

    A round has `every` iterations; the first one is not extrapolated. The results that are compared are those before
    extrapolation. Put it before `ReferenceReset` with the same `every`. Source: Accelerated Preference Optimization for
    Large Language Model Alignment, 2024, arXiv:2410.06293, in the parameters.

    Args:
        every: iterations of a round.
        alpha: size of the step, in [0, 1).
    """

    def __init__(self, every: int, alpha: float = 0.3):
        check_at_least(1, "extrapolation", every=every)
        check_interval("extrapolation", "[0, 1)", alpha=alpha)
        self.every, self.alpha = every, alpha
        self.before: dict[str, Tensor] = {}  # result of the last round; empty in the first

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if (trainer.current_epoch + 1) % self.every == 0:
            self.step(pl_module.policy)

    @torch.no_grad()
    def step(self, policy: nn.Module) -> None:
        """Extrapolate, and remember the result of this round."""
        trained = {name: p for name, p in policy.named_parameters() if p.requires_grad}
        result = {name: p.detach().clone() for name, p in trained.items()}
        if self.before:
            self.before = current_names(policy, self.before)
            for name, parameter in trained.items():
                before = shard_like(self.before[name].to(parameter.device), parameter)
                parameter.add_(result[name] - before, alpha=self.alpha)
        self.before = result

    def state_dict(self) -> dict[str, Any]:
        """Return the result of the last round without shards, for any number of processes. Collective."""
        return {"before": collect_tensors(self.before)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.before = dict(state_dict["before"])
