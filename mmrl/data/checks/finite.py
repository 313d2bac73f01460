"""Refuse numbers that are not finite: in columns, in the parts of the loss, in gradients and in weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.runs.run_folder import count_iterations

REMEDY = "Nothing is exported. Try a lower optimizer.lr, a lower trainer.gradient_clip_val or trainer.precision=32-true"


class NonFiniteError(RuntimeError):
    """A loss, gradient, weight, column or reward is NaN or infinite."""


def check_columns(batch: Batch, names: Iterable[str], part: str, trainer: Any) -> None:
    """Raise if a real column is not finite at a trained choice ([N, T] or [N, T, A]) or in a row [N].

    Args:
        batch: rows of this rank.
        names: of the columns; those that the batch does not have are passed over.
        part: that wrote them, for the message.
        trainer: for the iteration and the last checkpoint.
    """
    for name in sorted(set(names) & set(batch)):
        column = batch[name]
        if not isinstance(column, Tensor) or not column.is_floating_point():
            continue
        wrong, mask = ~column.isfinite(), batch["action_mask"]
        if column.shape[:2] == mask.shape:  # [N, T] or [N, T, A]
            wrong &= mask.view(*mask.shape, *[1] * (column.dim() - 2))
        if column.shape[:2] == mask.shape or column.dim() == 1:
            _refuse(wrong, f"column {name!r}, written by {part},", column, trainer)


def _refuse(wrong: Tensor, what: str, value: Tensor, trainer: Any) -> None:
    if wrong.any():
        row = int(wrong.flatten(1).any(1).nonzero()[0]) if wrong.dim() > 1 else int(wrong.nonzero()[0])
        raise NonFiniteError(
            f"{_iteration(trainer)}: {what} is {value[wrong][0].item()} in row {row} and in {int(wrong.sum()) - 1} "
            f"further places. {REMEDY}. {last_checkpoint(trainer)}"
        )


def check_loss(parts: Iterable[Mapping[str, Tensor]], trainer: Any) -> None:
    """Raise if a term of the loss or one of its diagnostics is not finite.

    Args:
        parts: named numbers of micro-batches.
        trainer: for the iteration and the last checkpoint.
    """
    for names in parts:
        if names and not torch.stack([value.float() for value in names.values()]).isfinite().all():
            wrong = {name: value.item() for name, value in names.items() if not value.isfinite()}
            terms = [name for name in wrong if "/" not in name] or list(wrong)
            raise NonFiniteError(
                f"{_iteration(trainer)}: term {terms[0]!r} of the loss is {wrong[terms[0]]}. {REMEDY}. "
                f"{last_checkpoint(trainer)}"
            )


def check_gradients(parameters: Iterable[tuple[str, nn.Parameter]], trainer: Any) -> None:
    """Raise if a gradient is not finite; the error names the parameter."""
    _check_tensors("the gradient of", {name: p.grad for name, p in parameters if p.grad is not None}, trainer)


def check_weights(parameters: Iterable[tuple[str, nn.Parameter]], trainer: Any) -> None:
    """Raise if a trained parameter is not finite; the error names it."""
    _check_tensors("parameter", {name: p.detach() for name, p in parameters if p.requires_grad}, trainer)


def _check_tensors(what: str, tensors: Mapping[str, Tensor], trainer: Any) -> None:
    # one reduction per tensor and a single transfer, so that a GPU is synchronised once; a sum with a NaN, with an
    # infinity or with infinities of both signs is not finite, and their absolute values would be a copy of the tensor
    sums = [tensor.float().sum() for tensor in map(_local, tensors.values())]
    if not sums or torch.stack(sums).isfinite().all():
        return
    for name, tensor in tensors.items():
        wrong = ~_local(tensor).isfinite()
        if wrong.any():
            raise NonFiniteError(
                f"{_iteration(trainer)}: {what} {name!r} has {int(wrong.sum())} of {wrong.numel()} numbers that are "
                f"NaN or infinite. {REMEDY}. {last_checkpoint(trainer)}"
            )


def _local(tensor: Tensor) -> Tensor:
    """Local part of a sharded tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def last_checkpoint(trainer: Any) -> str:
    """Format a sentence that names the newest checkpoint of the run."""
    folders = {Path(c.dirpath) for c in getattr(trainer, "checkpoint_callbacks", []) if getattr(c, "dirpath", None)}
    files = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.suffix == ".ckpt"]
    if not files:
        return "The run has no checkpoint yet"
    return f"The last good checkpoint is {max(files, key=count_iterations)}"


def _iteration(trainer: Any) -> str:
    return f"iteration {trainer.current_epoch}"
