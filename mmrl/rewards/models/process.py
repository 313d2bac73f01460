"""Process reward model as a scorer of steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from mmrl.core.batch import pad_stack
from mmrl.core.step_tokens import tokenize_steps
from mmrl.core.types import Episode
from mmrl.files.pretrained import load_pretrained
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
        model, tokenizer = self._parts
        rows = [
            tokenize_steps(tokenizer, episode.prompt.messages, texts, self.separator)
            for episode, texts in zip(episodes, steps, strict=True)
        ]
        out: list[list[float]] = []
        for start in range(0, len(rows), self.batch_size):
            part = rows[start : start + self.batch_size]
            ids = [torch.tensor(row) for row, _ in part]
            with torch.no_grad():
                logits = model(
                    input_ids=pad_stack(ids, tokenizer.pad_token_id or 0).to(self.device),
                    attention_mask=pad_stack([torch.ones_like(row) for row in ids]).to(self.device),
                ).logits
            right = logits.float().softmax(-1)[..., 1]
            out += [row[ends].tolist() for row, (_, ends) in zip(right, part)]
        return out

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        model = load_pretrained(AutoModelForTokenClassification, self.path).to(self.device).eval()
        if model.config.num_labels != 2:
            raise ValueError(
                f"{self.path} has {model.config.num_labels} labels; a process reward model is a token classifier with "
                "two, wrong and right, as method=process_reward trains"
            )
        return model, load_pretrained(AutoTokenizer, self.path)
