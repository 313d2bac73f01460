"""A teacher whose weights are on a server: log-probs of the student's completions over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.methods.offline.teacher_server.client import CompletionsClient, TeacherFailure
from mmrl.methods.offline.teacher_server.spans import span_ratios
from mmrl.ops.masked import last_inside
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

    def top_logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Ask for the likely tokens at every choice: ids [N, T, K], -1 fills up, and log-probs [N, T, K] in nats.

        Raises:
            ValueError: a row was sampled at another temperature than 1, or has images.
        """
        if not torch.allclose(batch["temperature"], torch.tensor(1.0)):
            raise ValueError("a teacher on a server reports log-probs at temperature 1; set sampling.temperature=1")
        prompts, completions = split_rows(batch)
        places = self.score_ids([[*prompt, *ids] for prompt, ids in zip(prompts, completions)])
        rows = [each[len(prompt) - 1 :] for each, prompt in zip(places, prompts)]
        shape = (*batch["action"].shape, max((len(place) for row in rows for place in row), default=1))
        ids, logprobs = torch.full(shape, -1), torch.zeros(shape)
        for n, row in enumerate(rows):
            for t, place in enumerate(row):
                ids[n, t, : len(place)] = torch.tensor(list(place))
                logprobs[n, t, : len(place)] = torch.tensor(list(place.values()))
        return ids, logprobs

    def span_advantages(self, batch: Batch, policy: Any) -> Tensor:
        """Compute log p_teacher(span) - log p_policy(span) at every choice, [N, T] in nats; 0 in no span.

        Args:
            batch: of the policy's completions, with `behavior_logprobs`.
            policy: a text policy, whose tokenizer spells them.
        """
        prompts, completions = split_rows(batch)
        special = set(policy.tokenizer.all_special_ids)
        texts = [policy.tokenizer.decode(prompt, skip_special_tokens=True) for prompt in prompts]
        # tokens of text before the first special token, which is the end of a completion
        lengths = [next((t for t, i in enumerate(ids) if i in special), len(ids)) for ids in completions]
        tokens = [policy.token_texts(ids[:length]) for ids, length in zip(completions, lengths)]
        scored = self.score_texts([text + "".join(part) for text, part in zip(texts, tokens)])
        advantages = torch.zeros(batch["action"].shape)
        for n, (theirs, logprobs) in enumerate(scored):
            ours = batch["behavior_logprobs"][n].tolist()
            for (low, high), value in span_ratios(tokens[n], ours, theirs, logprobs, texts[n]):
                advantages[n, low:high] = value
        return advantages

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


def split_rows(batch: Batch) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of the prompt of each row, and those of its choices up to the last one that is scored.

    Raises:
        ValueError: the prompts have images.
    """
    inputs = {name for name in batch if name.startswith("obs.")}
    if further := sorted(inputs - {"obs.input_ids", "obs.attention_mask"}):
        raise ValueError(f"a teacher on a server reads text alone, and the prompts have {further}; give it a path")
    prompts = [row[mask.bool()].tolist() for row, mask in zip(batch["obs.input_ids"], batch["obs.attention_mask"])]
    ends: Tensor = last_inside(batch.score_mask)
    return prompts, [row[:end].tolist() for row, end in zip(batch["action"], ends.tolist())]
