"""CapturedPhasedLearner: the off-policy learner with captured phases, for small networks on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmrl.capture.phase import CapturedPhase
from mmrl.capture.stepping import disable_checks, step
from mmrl.core.batch import Batch
from mmrl.distributed import parallel
from mmrl.learners.phased import PhasedLearner
from mmrl.learners.phases.base import Phase, UpdateContext


class CapturedPhasedLearner(PhasedLearner):
    """Learn as PhasedLearner does; operations of phases are captured, and replayed where that gives the same bits.

    Runs with several processes, accumulated gradients or an accelerator capture nothing.
    """

    def configure_optimizers(self) -> Any:
        result = super().configure_optimizers()
        self._captures = parallel.runs_on_one_cpu(self.trainer)
        for optimizer in (result[0] if isinstance(result, tuple) else result) if self._captures else ():
            disable_checks(optimizer)
        return result

    def on_train_start(self) -> None:
        super().on_train_start()
        self._phases = {
            name: CapturedPhase(name, phase, self._own_parameters.get(name, []))
            for name, phase in (self.phases.items() if self._captures else ())
        }

    def training_step(self, batches: Batch, index: int) -> None:
        super().training_step(batches, index)
        if index + 1 == self.trainer.num_training_batches:
            for phase in self._phases.values():  # an iteration's first update is computed by its own code too
                phase.revalidate()

    def run_phase(self, name: str, phase: Phase, batch: Batch, ctx: UpdateContext) -> Batch:
        if name not in self._phases or not CapturedPhase.supports(phase, batch):
            return super().run_phase(name, phase, batch, ctx)
        # its code asks these beside the columns
        terms = self.gradient_phases[name].objective.disabled_terms() if name in self.gradient_phases else ()
        key = *(model.training for model in ctx.models.values()), *terms
        columns, metrics, gradient = self._phases[name](batch, ctx.models, ctx.normal, key)
        ctx.log(metrics)
        if name in self.gradient_phases:
            for parameter, part in zip(self._own_parameters[name], gradient):
                parameter.grad = None if part is None else _in_layout_of(parameter, part)
            self._step(name)
        return batch.with_columns(**columns)

    def step_optimizer(self, optimizer: Any) -> None:
        if self._captures:
            step(optimizer.optimizer, self.trainer)
        else:
            super().step_optimizer(optimizer)


def _in_layout_of(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Return a gradient with the strides of its parameter, as a backward pass accumulates it.

    torch's fused optimisers read both in the order of memory, and the gradient of a convolution of images [N, H, W, C]
    has its channels last.
    """
    same = gradient.stride() == parameter.stride()
    return gradient if same else torch.empty_like(parameter).copy_(gradient)
