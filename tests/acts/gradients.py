"""A callback that notes which terms of a loss have a gradient at all."""

from __future__ import annotations

from functools import partial
from typing import Any

import lightning as L
import torch

from mmrl.core.batch import Batch
from mmrl.data.minibatches import UpdateEpoch
from mmrl.learners.phases.base import UpdateContext


def term_names(learner: Any) -> set[str]:
    """The names under which a learner logs what it minimises."""
    if hasattr(learner, "objective"):
        return set(learner.objective.terms)
    return {f"{phase}/{name}" for phase, objective in learner.objectives.items() for name in objective.terms}


class TermGradients(L.Callback):
    """Notes which terms have a gradient that is not zero, each by itself and once."""

    def __init__(self) -> None:
        self.terms: set[str] = set()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.terms == term_names(pl_module):
            return
        with torch.enable_grad():
            if hasattr(pl_module, "phases"):
                self._note_phases(pl_module, batch)
            else:
                for piece in batch if isinstance(batch, UpdateEpoch) else [batch]:
                    self._note(pl_module.objective, pl_module.outputs(piece), piece, pl_module.parameters(), "")

    def _note(self, objective: Any, out: Any, batch: Batch, parameters: Any, prefix: str) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        shares = objective._weighted_sums(batch)
        for name, term in objective.terms.items():
            if prefix + name in self.terms:
                continue
            value = shares[objective.row_masks.get(name)].sum(term(out, batch), name)
            if value.requires_grad:
                result = torch.autograd.grad(value, trained, allow_unused=True, retain_graph=True)
                if any(part is not None and part.abs().max() > 0 for part in result):
                    self.terms.add(prefix + name)

    def _note_phases(self, learner: Any, batches: Batch) -> None:
        if not batches:
            return
        batch = Batch({name: column[0] for name, column in batches.items()})
        noise = torch.Generator().manual_seed(0)
        draw = partial(torch.randn, generator=noise)
        update = UpdateContext(
            learner._models_by_name(), lambda *shape: draw(*shape), lambda loss: None, lambda numbers: None
        )
        for name, phase in learner.phases.items():
            if name in learner.gradient_phases:
                out = phase.output(batch, update)
                self._note(phase.objective, out, batch, learner._own_parameters[name], f"{name}/")
            if phase.writes():
                batch = phase(batch, update)
