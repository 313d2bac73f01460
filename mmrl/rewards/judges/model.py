"""A judge that is a model of transformers in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from mmrl.files.pretrained import load_pretrained
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import OptionIds, Question, Reply


class ModelJudge(LanguageJudge):
    """Judge: an untouched causal language model of transformers with weights of its own; its replies are greedy.

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
        replies: list[Reply | NoAnswer] = []
        for start in range(0, len(questions), self.batch_size):
            replies += self._reply_batch(questions[start : start + self.batch_size])
        return replies

    @torch.no_grad()
    def _reply_batch(self, questions: Sequence[Question]) -> list[Reply]:
        model, tokenizer = self._parts
        texts = [self._format(question.text, tokenizer) for question in questions]
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(self.device)
        inputs.pop("token_type_ids", None)
        reads = [inputs["attention_mask"].sum(dim=-1).tolist(), questions]
        if all(question.options for question in questions):
            logprobs = model(**inputs).logits[:, -1].float().log_softmax(dim=-1)  # [n, V], of the first token
            return [Reply("", n, 0, self._sum(row, q.options)) for n, q, row in zip(*reads, logprobs)]
        ids = model.generate(
            **inputs, max_new_tokens=self.max_tokens, do_sample=False, num_beams=1, pad_token_id=tokenizer.pad_token_id
        )[:, inputs["input_ids"].shape[1] :]
        written = [row[row != tokenizer.pad_token_id] for row in ids]
        decoded = [tokenizer.decode(row, skip_special_tokens=True) for row in written]
        return [Reply(text, n, len(row)) for n, text, row in zip(reads[0], decoded, written)]

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

        model = load_pretrained(AutoModelForCausalLM, self.path).to(self.device).eval()
        tokenizer = load_pretrained(AutoTokenizer, self.path, padding_side="left")
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model, tokenizer
