"""Rows of tokens through a network of others that only scores: padded where that changes no score."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import pad_stack

log = logging.getLogger(__name__)

EXACT = 1e-4  # difference, as a share of the largest score, that padding may make in 32 bits
COMPARED = 8  # rows, each of another length


class RowScorer:
    """Logits of a model of transformers for rows of token ids, in batches padded on the right.

    Some architectures read padding, and their scores of a row depend on the rows beside it. So the first rows of
    several lengths are compared with each of them alone; where the logits differ, batches have rows of one length,
    which takes longer, and a line says so.

    Args:
        model: in evaluation mode, on the device where it runs.
        padding: id of padding.
        batch_size: rows per forward pass.
        path: of the model, for messages.
    """

    def __init__(self, model: Any, padding: int, batch_size: int, path: str):
        self.model, self.padding, self.batch_size = model, padding, batch_size
        self._name = f"the classifier {path} ({model.config.model_type})"
        self._padded: bool | None = None  # whether rows may be padded; unknown before rows of two lengths

    def __call__(self, rows: Sequence[Sequence[int]]) -> list[Tensor]:
        """Logits of each row in fp32, [H] for a label of the row or [L_i, H] for labels of its tokens.

        Raises:
            ValueError: the model cannot read the rows.
        """
        ids = [torch.tensor(row) for row in rows]
        by_length: defaultdict[int, list[int]] = defaultdict(list)  # numbers of the rows
        for i, row in enumerate(ids):
            by_length[len(row)].append(i)
        if self._padded is None and len(by_length) > 1:
            self._padded = self._compare([ids[same[0]] for same in by_length.values()][:COMPARED])
        groups = by_length.values() if self._padded is False else [range(len(ids))]
        logits: dict[int, Tensor] = {}
        for part in (group[i : i + self.batch_size] for group in groups for i in range(0, len(group), self.batch_size)):
            logits |= zip(part, self._run([ids[i] for i in part]))
        return [logits[i] for i in range(len(ids))]

    def _compare(self, rows: Sequence[Tensor]) -> bool:
        """Whether rows in one batch have the logits of each row alone."""
        together, alone = self._run(rows), [self._run([row])[0] for row in rows]
        scale = max(float(each.abs().max()) for each in alone)
        worst = max(float((one - other).abs().nan_to_num(torch.inf).max()) for one, other in zip(together, alone))
        # 16 bits round by more than padding may change
        if worst <= scale * max(EXACT, 8 * torch.finfo(self.model.dtype).eps):
            return True
        log.warning(
            f"{self._name}: rows padded on the right change its scores by {worst:.2g}, "
            "so only rows of one length are scored together"
        )
        return False

    @torch.no_grad()
    def _run(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """One forward pass; logits of tokens are those of the row without padding."""
        ids, masks = pad_stack(rows, self.padding), pad_stack([torch.ones_like(row) for row in rows])  # [N, max L_i]
        try:
            out = self.model(ids.to(self.model.device), attention_mask=masks.to(self.model.device))
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError) as error:
            raise ValueError(
                f"{self._name} cannot score rows of text: {error}. Choose a classifier "
                "that reads token ids and an attention mask, such as qwen2, llama or bert"
            ) from error
        logits = out.logits.float().cpu()
        return list(logits) if logits.ndim == 2 else [row[: len(each)] for row, each in zip(logits, rows)]
