"""Rows of networks that only score: padded on the right and in training mode, against the untouched model on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import pad_stack
from mmrl.policies.text.fidelity.measure import EXACT, fixed_draws, restore_noise
from mmrl.policies.text.loading import NoiseSettings
from mmrl.policies.text.packing.prefix_sharing import in_fp32

LENGTHS = (3, 5, 14)  # tokens of the rows; the end of a short one is near the padding


def check_rows(
    model: Any, noise: NoiseSettings, score: Callable[[Tensor, Tensor], Tensor], padding: int, end: int
) -> None:
    """Compare the numbers of padded rows in training mode with those of each row alone in evaluation mode.

    Networks that score take no shortcut but these: they have the attention of transformers, no cache, and no sharing.

    Args:
        model: of transformers, with its noise set to zero.
        noise: the settings that were set to zero, with their values.
        score: of ids [N, L] and attention mask [N, L], numbers [N] or [N, D].
        padding: id of padding.
        end: id that ends a row.

    Raises:
        ValueError: the numbers differ by more than a thousandth.
    """
    modes = [(module, module.training) for module in model.modules()]
    rows = [torch.tensor([*ids, end]) for ids in _choose_ids(model, padding, end)]  # of several lengths [L_i]
    kind = model.config.model_type
    try:
        with torch.no_grad(), fixed_draws(), in_fp32(model):
            model.eval()
            # each row alone [1, L_i] in evaluation mode: [D] numbers
            with restore_noise(noise):
                alone = [score(row[None], torch.ones_like(row)[None])[0] for row in rows]
            model.train()
            # all rows in one batch [N, max L_i], padded on the right, in training mode
            masks = pad_stack([torch.ones_like(row) for row in rows])
            together = score(pad_stack(rows, padding), masks)
    finally:
        for module, mode in modes:
            module.training = mode
    # largest difference relative to the largest number; NaN counts as infinite
    scale = max(1.0, *(float(each.abs().max()) for each in alone))
    worst = max(float((one - other).abs().nan_to_num(torch.inf).max()) for one, other in zip(together, alone)) / scale
    if worst > EXACT:
        raise ValueError(
            f"policy: {kind} computes something else here than in transformers alone: rows padded on the right, in "
            f"training mode, change its numbers by {worst:.2g}. Choose a model that padding does not change and that "
            "draws no noise, such as qwen2, llama or bert"
        )


def _choose_ids(model: Any, padding: int, end: int) -> list[list[int]]:
    """Ids other than padding and end: those behind them, or from the first on where they are the last of the words."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    first = max(padding, end) + 1
    if first + max(LENGTHS) > vocabulary:
        first = 0
    ids = [i for i in range(first, vocabulary) if i not in (padding, end)]
    return [ids[: length - 1] for length in LENGTHS]
