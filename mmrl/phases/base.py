"""One of the steps that an update of a manual learner takes, in an order that is the algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mmrl.batch import Batch


@dataclass(frozen=True)
class Turn:
    """What an update lends to a phase.

    Args:
        models: everything that has parameters, by name: "policy", the recipe's models, and their slow copies.
        normal: standard normal draws of a shape, a function of the run's seed, the update and the order of calls.
        descend: takes the phase's optimiser step on a scalar loss.
        log: names numbers of this update, each a tensor without gradient.
    """

    models: Mapping[str, Any]  # modules, each with its own methods
    normal: Callable[..., Tensor]
    descend: Callable[[Tensor], None]
    log: Callable[[Mapping[str, Tensor]], None]


class Phase(ABC):
    """Reads some columns of the update's batch, may write others for the phases after it, may move some parameters.

    What it does depends on the batch, the models and the turn's draws alone; it keeps nothing between updates.
    """

    every: int = 1  # runs in every so-manieth update
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    trains: tuple[str, ...] = ()  # models, or parts of them as in "policy.actor", that its optimiser moves

    @property
    @abstractmethod
    def models(self) -> frozenset[str]:
        """Names of all the models that it uses."""

    @abstractmethod
    def __call__(self, batch: Batch, turn: Turn) -> Batch: ...

    def check(self) -> None:
        """Refuse what cannot be meant; learners call it when they are made."""
        if self.every < 1:
            raise ValueError(f"{type(self).__name__}.every must be at least 1, got {self.every}")


def part(models: Mapping[str, nn.Module], path: str) -> nn.Module:
    """The model, or the part of one, that a dotted path names."""
    name, _, rest = path.partition(".")
    try:
        return models[name].get_submodule(rest)
    except (KeyError, AttributeError) as error:
        raise ValueError(f"no model {path!r}; models are {sorted(models)}") from error
