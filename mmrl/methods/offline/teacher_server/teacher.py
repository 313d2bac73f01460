"""A teacher whose weights are on a server: log-probs of the student's completions over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.methods.offline.teacher_server.client import CompletionsClient, TeacherFailure
from mmrl.policies.base import Action, Policy
from mmrl.policies.remote.token import read_token


class ServerTeacher(Policy):
    """Teacher behind OpenAI's completions endpoint, under model.frozen_models; annotators ask it for log-probs.

    It samples and trains nothing here. Log-probs are those of temperature 1.

    Args:
        url: base address with or without /v1, such as http://localhost:8000/v1.
        model: name that the server gives it; None takes the server's only model.
        top_k: most likely tokens that are asked for at every choice. vLLM reports at most `--max-logprobs`, 20 unless
            it is set; -1 of both is the whole vocabulary.
        token_file: file with the server's token; None takes the environment variable MMRL_SERVE_TOKEN, if it is set.
        connections: most requests at once.
        timeout_s: longest wait for an answer, seconds.
        retries: how often a request is repeated when the server is away or busy.
    """

    not_trainable = "its weights are at teacher.url"

    def __init__(
        self,
        url: str,
        model: str | None = None,
        top_k: int = 20,
        token_file: str | None = None,
        connections: int = 16,
        timeout_s: float = 120.0,
        retries: int = 4,
    ):
        super().__init__()
        if not re.fullmatch(r"https?://[^/\s]+\S*", url):
            raise ValueError(f"teacher.url={url}: must be http://HOST:PORT or https://HOST:PORT, with or without /v1")
        if top_k < 1 and top_k != -1:
            raise ValueError(f"teacher.top_k must be at least 1, or -1 for the whole vocabulary, got {top_k}")
        check_at_least(1, "teacher", connections=connections)
        check_at_least(0, "teacher", retries=retries)
        check_positive("teacher", timeout_s=timeout_s)
        self.path, self.top_k = url, top_k
        token = read_token(token_file, "teacher.token_file")
        self.client = CompletionsClient(url, model, token, connections, timeout_s, retries)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def score_ids(self, sequences: Sequence[Sequence[int]]) -> list[list[dict[int, float]]]:
        """Ask for the log-probs of likely tokens at every place of token sequences.

        Returns:
            For each sequence and each of its tokens but the first: log-prob in nats by id, of the `top_k` most likely
            ids and of the token that stands there.

        Raises:
            TeacherFailure: the server has no `prompt_logprobs`, which are vLLM's, or refuses that many.
        """
        options = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": self.top_k}
        answers = self.client.ask_all([{"prompt": list(ids), **options} for ids in sequences])
        return [self._read_ids(answer, len(ids)) for answer, ids in zip(answers, sequences)]

    def _read_ids(self, answer: Mapping[str, Any], length: int) -> list[dict[int, float]]:
        entries = answer["choices"][0].get("prompt_logprobs") or answer.get("prompt_logprobs")
        if not isinstance(entries, list) or len(entries) != length:
            raise TeacherFailure(
                f"teacher.url={self.path} reports no prompt_logprobs for {length} prompt tokens. vLLM does; of another "
                "server use method=span_distillation, which reads OpenAI's logprobs with echo"
            )
        return [{int(i): float(entry["logprob"]) for i, entry in place.items()} for place in entries[1:]]

    def score_texts(self, texts: Sequence[str]) -> list[tuple[list[str], list[float | None]]]:
        """Ask for the tokens of texts, by the teacher's tokenizer, and their log-probs in nats; None for the first."""
        options = {"max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
        answers = self.client.ask_all([{"prompt": text, **options} for text in texts])
        return [self._read_text(answer) for answer in answers]

    def _read_text(self, answer: Mapping[str, Any]) -> tuple[list[str], list[float | None]]:
        scores = answer["choices"][0].get("logprobs") or {}
        tokens, logprobs = scores.get("tokens"), scores.get("token_logprobs")
        if not tokens or not logprobs or len(tokens) != len(logprobs):
            raise TeacherFailure(
                f"teacher.url={self.path} reports no log-probs of the prompt; it must support echo=true with logprobs, "
                "as vLLM's completions endpoint does"
            )
        count = (answer.get("usage") or {}).get("prompt_tokens") or len(tokens) - 1
        return tokens[:count], logprobs[:count]

    # ---------------------------------------------------------------- what a teacher on a server does not do

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        raise NotImplementedError(f"the teacher at {self.path} is asked for log-probs of completions alone")

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        raise NotImplementedError(f"the teacher at {self.path} samples nothing here; give the model a path")

    def forward(self, batch: Batch) -> PolicyOutput:
        raise NotImplementedError(
            f"the teacher at {self.path} is no term's second pass; use method=gkd_server or method=span_distillation"
        )

    def save_pretrained(self, folder: str | Path) -> None:
        raise NotImplementedError(f"the teacher's weights are at {self.path}")
