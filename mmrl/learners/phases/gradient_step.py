"""Gradient step of an off-policy update: one optimizer, one objective."""

from __future__ import annotations

from lightning.pytorch.cli import OptimizerCallable

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import Phase, UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Objective, Term


class GradientStep(Phase):
    """GradientStep: one optimizer step on an objective; the parameters of all other models are constants in it.

    Args:
        parameters: models whose parameters the step updates, or parts of them as in "policy.actor".
        output: the forward pass that the terms are computed from.
        terms: named summands of the loss, weighted by the batch.
        optimizer: constructed with those parameters.
        coefficients: factor of each term, 1 where none is given.
        every: take the step in every `every`-th update (policy delay in TD3).
        max_grad_norm: clip the gradient to this norm; None does not clip.
    """

    def __init__(
        self,
        parameters: list[str],
        output: Output,
        terms: dict[str, Term],
        optimizer: OptimizerCallable,
        coefficients: dict[str, float] | None = None,
        every: int = 1,
        max_grad_norm: float | None = None,
    ):
        self.parameters, self.output, self.optimizer = tuple(parameters), output, optimizer
        self.objective = Objective(terms, coefficients)
        self.every, self.max_grad_norm = every, max_grad_norm

    def reads(self) -> frozenset[str]:
        return self.objective.reads()

    def models(self) -> frozenset[str]:
        return self.output.models() | {name.partition(".")[0] for name in self.parameters}

    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        loss, metrics = self.objective.total(self.output(batch, ctx), batch)
        ctx.minimize(loss)
        ctx.log(metrics)  # sums: the learner divides them by their weights
        return batch

    def check(self) -> None:
        super().check()
        if not self.parameters:
            raise ValueError("GradientStep.parameters is empty: name at least one model to train")
        for name, term in self.objective.terms.items():
            if missing := sorted(term.needs() - self.output.gives()):
                raise ValueError(
                    f"term {name!r} needs {missing} of the output, but {type(self.output).__name__} gives "
                    f"{sorted(self.output.gives())}"
                )
