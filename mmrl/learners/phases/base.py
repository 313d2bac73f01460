"""Phases: the steps of an off-policy update, whose order is the algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.files.weight_names import name_remedy


@dataclass(frozen=True)
class UpdateContext:
    """Context of one off-policy update for its phases: models, random noise, optimizer step and log.

    Args:
        models: everything that has parameters, by name: "policy", the recipe's models, and the target networks.
        normal: standard normal draws of a shape whose first axis is the rows of the batch, a function of the run's
            seed, the update, the order of calls and the row's place in the batch of all processes.
        minimize: takes the phase's optimizer step on a scalar loss, which is a sum over rows times `loss_weights`.
        log: records numbers of this update by name, each a tensor without gradient: means over the rows of the batch,
            or of a GradientStep sums over rows times `loss_weights`.
    """

    models: Mapping[str, Any]  # modules, each with its own methods
    normal: Callable[..., Tensor]
    minimize: Callable[[Tensor], None]
    log: Callable[[Mapping[str, Tensor]], None]


class Phase(ABC):
    """One step of an off-policy update: reads columns of the batch, may write columns, may update parameters.

    A phase depends on the batch, the models and the draws of its context alone; it keeps nothing between updates.
    """

    every: int = 1  # run every `every` updates (policy delay in TD3)

    def reads(self) -> frozenset[str]:
        """Columns of the batch that it reads."""
        return frozenset()

    def writes(self) -> frozenset[str]:
        """Columns that it writes."""
        return frozenset()

    parameters: tuple[str, ...] = ()  # models, or parts of them as in "policy.actor", that its optimizer updates

    @abstractmethod
    def models(self) -> frozenset[str]:
        """Names of the models that it uses."""

    @abstractmethod
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch: ...

    def check(self) -> None:
        """Refuse invalid arguments; the learner's constructor calls it."""
        check_at_least(1, type(self).__name__, every=self.every)


def part(models: Mapping[str, nn.Module], path: str) -> nn.Module:
    """Look up a model, or a submodule of one, by its dotted path."""
    name, _, rest = path.partition(".")
    try:
        return models[name].get_submodule(rest)
    except (KeyError, AttributeError) as error:
        remedy = name_remedy(models[name], [rest]) if name in models else ""
        raise ValueError(f"no model {path!r}; models are {sorted(models)}{remedy}") from error
