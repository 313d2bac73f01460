"""Compare a language model that judges on padded questions with the same model on each question alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

TEXTS = ("No", "Is the answer right?", "Read the problem and the answer below, and say whether the answer is right.")
"""Rows of three lengths."""
EXACT = 1e-3
"""Difference of logits in fp32, as a share of the largest, that padding may make."""


def compute_next_logits(model: Any, rows: Sequence[Tensor], padding: int) -> Tensor:
    """Logits [N, V] after each row of token ids, in one batch padded on the left."""
    ids, mask = pad_left(rows, padding)
    return model(input_ids=ids, attention_mask=mask).logits[:, -1].float()


def compute_written_logits(model: Any, rows: Sequence[Tensor], padding: int) -> Tensor:
    """Logits [N, V] of the first token that each row is continued with, as `generate` computes them."""
    ids, mask = pad_left(rows, padding)
    out = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=1, min_new_tokens=1, do_sample=False, num_beams=1,
        pad_token_id=padding, output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    return out.logits[0].float()


@torch.no_grad()
def measure_padding(compute: Any, model: Any, tokenizer: Any) -> float:
    """The largest difference that padding makes to logits, as a share of the largest logit.

    Args:
        compute: `compute_next_logits` or `compute_written_logits`.
        model: of transformers, in evaluation mode.
        tokenizer: with an id of padding.
    """
    rows = [torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"], device=model.device) for text in TEXTS]
    together = compute(model, rows, tokenizer.pad_token_id)
    alone = torch.cat([compute(model, [row], tokenizer.pad_token_id) for row in rows])
    return float((together - alone).abs().nan_to_num(torch.inf).max() / alone.abs().max())


def bound(model: Any) -> float:
    """Difference up to which padding counts as harmless: 16 bits round by more than fp32."""
    return max(EXACT, 8 * torch.finfo(model.dtype).eps)


def pad_left(rows: Sequence[Tensor], padding: int) -> tuple[Tensor, Tensor]:
    """Rows of token ids as a batch [N, max L_i] padded on the left, and its attention mask."""
    length = max(map(len, rows))
    ids = torch.stack([torch.cat([row.new_full((length - len(row),), padding), row]) for row in rows])
    mask = torch.stack([torch.arange(length, device=row.device) >= length - len(row) for row in rows])
    return ids, mask.long()
