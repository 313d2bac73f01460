"""Process reward model as a scorer of steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from mmrl.core.messages import tokenize_steps
from mmrl.core.types import Episode
from mmrl.files.pretrained import load_pretrained, load_whole
from mmrl.rewards.models.row_scorer import RowScorer
from mmrl.rewards.steps import StepScorer


class ProcessRewardModel(StepScorer):
    """Probability that a step is right by a token classifier of transformers with two labels, at the end of each step.

    Args:
        path: hub id or folder of the classifier and its tokenizer, read at the first call.
        separator: text after each step, as in training.
        device: where it runs; None takes a GPU where there is one.
        batch_size: answers per forward pass.
    """

    def __init__(self, path: str, separator: str = "\n", device: str | None = None, batch_size: int = 64):
        self.path, self.separator, self.batch_size = path, separator, batch_size
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def __call__(self, episodes: Sequence[Episode], steps: Sequence[Sequence[str]]) -> list[list[float]]:
        scorer, tokenizer = self._parts
        rows = [
            tokenize_steps(tokenizer, episode.prompt.messages, texts, self.separator)
            for episode, texts in zip(episodes, steps, strict=True)
        ]
        logits = scorer([ids for ids, _ in rows])
        return [row.softmax(-1)[ends, 1].tolist() for row, (_, ends) in zip(logits, rows)]

    @cached_property
    def _parts(self) -> tuple[RowScorer, Any]:
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        model = load_whole(AutoModelForTokenClassification, self.path).to(self.device).eval()
        if model.config.num_labels != 2:
            raise ValueError(
                f"{self.path} has {model.config.num_labels} labels; a process reward model is a token classifier with "
                "two, wrong and right, as method=process_reward trains"
            )
        tokenizer = load_pretrained(AutoTokenizer, self.path)
        return RowScorer(model, tokenizer.pad_token_id or 0, self.batch_size, self.path), tokenizer
