"""A judge that is a model of transformers in this process."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch

from mmrl.files.pretrained import load_pretrained, load_whole
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.padding import bound, compute_next_logits, compute_written_logits, measure_padding, pad_left
from mmrl.rewards.judges.questions import OptionIds, Question, Reply

log = logging.getLogger(__name__)


class ModelJudge(LanguageJudge):
    """Judge: an untouched causal language model of transformers with weights of its own; its replies are greedy.

    Before the first question, its logits after padded rows are compared with those after each row alone; where they
    differ, only questions of one length are asked together, which takes longer, and a line says so.

    Args:
        path: hub id or folder of the model and its tokenizer, read at the first question.
        max_tokens: of a reply.
        batch_size: questions per forward pass.
        device: where it runs; None takes a GPU where there is one.
    """

    def __init__(self, path: str, max_tokens: int = 256, batch_size: int = 16, device: str | None = None):
        super().__init__()
        self.path, self.max_tokens, self.batch_size = path, max_tokens, batch_size
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def reply(self, questions: Sequence[Question]) -> list[Reply | NoAnswer]:
        replies: dict[int, Reply] = {}
        model, tokenizer = self._parts
        # whether all verdicts are log-probs of a first word, so that nothing is written
        scored = all(question.options for question in questions)
        texts = [self._format(question.text, tokenizer) for question in questions]
        ids = [
            torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"], device=self.device) for text in texts
        ]
        for part in self._split(ids, scored):
            rows, some = [ids[i] for i in part], [questions[i] for i in part]
            answers = self._read_options(model, rows, some) if scored else self._write(model, rows, tokenizer)
            replies |= zip(part, answers)
        return [replies[i] for i in range(len(questions))]

    def _split(self, ids: Sequence[torch.Tensor], scored: bool) -> list[list[int]]:
        """Numbers of the questions of each forward pass: of one length, where padding would change the logits."""
        groups: dict[int, list[int]] = defaultdict(list)
        pads = self._pads_next if scored else self._pads_written
        for i, row in enumerate(ids):
            groups[0 if pads else len(row)].append(i)
        size = self.batch_size
        return [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]

    @torch.no_grad()
    def _read_options(self, model: Any, rows: Sequence[torch.Tensor], questions: Sequence[Question]) -> list[Reply]:
        padding = self._parts[1].pad_token_id
        logprobs = compute_next_logits(model, rows, padding).log_softmax(dim=-1)  # [n, V], of the first token
        return [Reply("", len(row), 0, self._sum(p, q.options)) for row, q, p in zip(rows, questions, logprobs)]

    @torch.no_grad()
    def _write(self, model: Any, rows: Sequence[torch.Tensor], tokenizer: Any) -> list[Reply]:
        padding = tokenizer.pad_token_id
        ids, mask = pad_left(rows, padding)
        options = {"max_new_tokens": self.max_tokens, "do_sample": False, "num_beams": 1, "pad_token_id": padding}
        written = model.generate(input_ids=ids, attention_mask=mask, **options)[:, ids.shape[1] :]
        answers = [row[row != padding] for row in written]
        decoded = [tokenizer.decode(row, skip_special_tokens=True) for row in answers]
        return [Reply(text, len(row), len(answer)) for row, text, answer in zip(rows, decoded, answers)]

    @cached_property
    def _pads_next(self) -> bool:
        return self._compare(compute_next_logits)

    @cached_property
    def _pads_written(self) -> bool:
        return self._compare(compute_written_logits)

    def _compare(self, compute: Callable[..., torch.Tensor]) -> bool:
        """Whether questions of several lengths may be asked together; where they may not, a line says so."""
        model, tokenizer = self._parts
        worst = measure_padding(compute, model, tokenizer)
        if worst <= bound(model):
            return True
        log.warning(
            f"reward.judge.path={self.path} ({model.config.model_type}): questions padded on the left change its "
            f"logits by {worst:.2g} of the largest, so only questions of one length are asked together"
        )
        return False

    def _sum(self, logprobs: torch.Tensor, options: Sequence[str]) -> dict[str, float]:
        """Log-prob of each option: of all tokens that are its text, with or without a blank and capitals."""
        return {option: logprobs[self._ids.find(option)].logsumexp(dim=0).item() for option in options}

    @cached_property
    def _ids(self) -> OptionIds:
        return OptionIds(self._parts[1], f"reward.judge.path={self.path}", "its tokenizer")

    @staticmethod
    def _format(text: str, tokenizer: Any) -> str:
        if tokenizer.chat_template is None:
            return text + "\n"
        messages = [{"role": "user", "content": text}]
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = load_whole(AutoModelForCausalLM, self.path).to(self.device).eval()
        tokenizer = load_pretrained(AutoTokenizer, self.path)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model, tokenizer
