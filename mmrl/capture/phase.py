"""CapturedPhase: run a phase of an update as a captured computation from tensors to tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from mmrl.capture.graph import CapturedGraph
from mmrl.core.batch import Batch, add_prefix, strip_prefix
from mmrl.learners.phases.base import Phase, UpdateContext

Draw = Callable[..., Tensor]


class CapturedPhase:
    """Captures the columns that a phase writes, its metrics and the gradient of its loss.

    Its draws become arguments of the computation: how many there are of which shape follows from the shapes of the
    batch, and is noted when the phase runs for the first time.

    Args:
        name: of the phase.
        phase: neither keeps anything between updates nor moves parameters but by `ctx.minimize`.
        parameters: that it moves.
    """

    def __init__(self, name: str, phase: Phase, parameters: Sequence[nn.Parameter]):
        self.name, self.phase, self.parameters = name, phase, list(parameters)
        self.graph = CapturedGraph(f"phase {name!r}")
        self._draw_shapes: dict[Hashable, list[tuple[int, ...]]] = {}

    @staticmethod
    def supports(phase: Phase, batch: Batch) -> bool:
        """Whether a phase can be captured on this batch: it gives results, and reads tensors alone."""
        return bool(phase.writes() or phase.parameters) and all(isinstance(column, Tensor) for column in batch.values())

    def revalidate(self) -> None:
        """Compare with the phase's own code again."""
        self.graph.revalidate()

    def __call__(
        self, batch: Batch, models: Mapping[str, Any], normal: Draw, key: Hashable
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Tensor | None]]:
        """Return columns, metrics and the gradient of each parameter, None where the loss does not depend on it.

        Args:
            batch: of tensors.
            models: of the update.
            normal: of the update.
            key: what the phase's code asks beside all that.
        """
        kind = (key, *((name, column.shape) for name, column in batch.items()))
        if kind in self._draw_shapes:
            draws = {str(k): normal(*shape) for k, shape in enumerate(self._draw_shapes[kind])}
            inputs = {**add_prefix("column", batch), **add_prefix("draw", draws)}
            outputs = self.graph(lambda tensors: self._replay(tensors, models), inputs, key)
        else:
            shapes = self._draw_shapes[kind] = []

            def note_shape(*shape: int) -> Tensor:
                shapes.append(shape)
                return normal(*shape)

            outputs = self._compute(batch, models, note_shape)
        gradient = strip_prefix("gradient", outputs)
        return (
            strip_prefix("column", outputs),
            strip_prefix("metric", outputs),
            [gradient.get(str(k)) for k in range(len(self.parameters))],
        )

    def _replay(self, inputs: dict[str, Tensor], models: Mapping[str, Any]) -> dict[str, Tensor]:
        draws = list(strip_prefix("draw", inputs).values())

        def next_draw(*shape: int) -> Tensor:
            if not draws or draws[0].shape != shape:
                self._refuse(f"another draw of shape {list(shape)}")
            return draws.pop(0)

        outputs = self._compute(Batch(strip_prefix("column", inputs)), models, next_draw)
        if draws:
            self._refuse("fewer draws")
        return outputs

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"phase {self.name!r} asks for {what} than it did before for columns of the same shapes; what it does may "
            "depend on the batch, the models and its draws only"
        )

    def _compute(self, batch: Batch, models: Mapping[str, Any], normal: Draw) -> dict[str, Tensor]:
        outputs: dict[str, Tensor] = {}

        def minimize(loss: Tensor) -> None:
            parts = torch.autograd.grad(loss, self.parameters, allow_unused=True)
            outputs.update({f"gradient/{k}": part for k, part in enumerate(parts) if part is not None})

        def log(metrics: Mapping[str, Tensor]) -> None:
            outputs.update(add_prefix("metric", metrics))

        after = self.phase(batch, UpdateContext(models, normal, minimize, log))
        return outputs | add_prefix("column", {name: after[name] for name in sorted(self.phase.writes())})
