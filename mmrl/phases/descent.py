"""A gradient step on an objective of its own."""

from __future__ import annotations

from lightning.pytorch.cli import OptimizerCallable

from mmrl.batch import Batch
from mmrl.objectives.objective import Objective, Term
from mmrl.phases.base import Phase, Turn
from mmrl.phases.output import Output


class Descent(Phase):
    """Runs the networks, adds up terms and moves some parameters; all others are constants meanwhile.

    Args:
        trains: models whose parameters move, or parts of them as in "policy.actor".
        output: how the networks are run.
        terms: named summands of the loss, with the batch's `weights`.
        optimizer: made from those parameters.
        coefficients: factor of each term, 1 where none is given.
        every: k, the step is taken in every k-th update.
        clip: largest norm of the gradient; None for any.
    """

    def __init__(
        self,
        trains: list[str],
        output: Output,
        terms: dict[str, Term],
        optimizer: OptimizerCallable,
        coefficients: dict[str, float] | None = None,
        every: int = 1,
        clip: float | None = None,
    ):
        self.trains, self.output, self.optimizer = tuple(trains), output, optimizer
        self.objective = Objective(terms, coefficients)
        self.every, self.clip = every, clip

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return self.objective.reads

    @property
    def models(self) -> frozenset[str]:
        return self.output.models | {name.partition(".")[0] for name in self.trains}

    def __call__(self, batch: Batch, turn: Turn) -> Batch:
        loss, metrics = self.objective.total(self.output(batch, turn), batch)
        turn.descend(loss)
        turn.log(metrics)  # sums: the learner divides them by their weights
        return batch

    def check(self) -> None:
        super().check()
        if not self.trains:
            raise ValueError("Descent.trains names no model: nothing would be learnt")
        for name, term in self.objective.terms.items():
            if missing := sorted(term.needs - self.output.gives):
                raise ValueError(
                    f"term {name!r} needs {missing} of the output, but {type(self.output).__name__} gives "
                    f"{sorted(self.output.gives)}"
                )
