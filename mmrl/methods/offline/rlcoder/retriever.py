"""RLCoder: the retriever, a bi-encoder policy that chooses one of the candidates of a query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from mmrl.core.batch import Batch, pad_stack
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.files.pretrained import build_pretrained, load_pretrained
from mmrl.ops.choice import draw
from mmrl.ops.logprob import logprob_entropy
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.fidelity import check_rows
from mmrl.policies.text.loading import checkpoint_error, list_noise, load_model, remove_noise, save_model
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.policies.text.tokenizer import set_pad_token


def retrieval_logits(
    query: Tensor,  # [N, D]
    candidates: Tensor,  # [N, C, D]
    scale: float = 20.0,
) -> Tensor:  # [N, C]
    """scale * <q, d_c> with q and d_c of length 1. Source: RLCoder, 2024, arXiv:2407.19487, and its released code."""
    unit = nn.functional.normalize
    return scale * (unit(query, dim=-1)[:, None] * unit(candidates, dim=-1)).sum(-1)


class RetrieverPolicy(Policy):
    """Bi-encoder: embeds a query and its candidates with one encoder, and samples a candidate by `retrieval_logits`.

    The raw observation has `query` and `candidates`, whose number is the same in every observation; a row's one choice
    is the place of a candidate. An embedding is the mean of the last hidden states over a text's tokens.
    The encoder keeps the attention of transformers; padding on the right and training without noise are compared with
    the untouched model at load.
    Source: RLCoder, 2024, arXiv:2407.19487.

    Args:
        path: hub id or folder of an encoder with its tokenizer.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        scale: of the inner products.
    """

    def __init__(self, path: str | None = None, config: dict[str, Any] | None = None, scale: float = 20.0):
        super().__init__()
        if path is None and config is None:
            raise ValueError("policy: give `path` (a hub id or a folder) or `config` (an architecture)")
        self.path, self.scale = path, scale
        if path is not None:
            with checkpoint_error(path):
                self.tokenizer: Any = load_pretrained(AutoTokenizer, **locate_checkpoint(path))
                model = load_model(AutoModel, path, ())
        else:
            self.tokenizer = character_tokenizer()
            options = dict(config or {})
            full = build_config(options.pop("model_type", "qwen2"), options, **special_ids(self.tokenizer))
            model = build_pretrained(AutoModel, full)
        set_pad_token(self.tokenizer, str(path))
        noise = list_noise(model)
        self.model: Any = remove_noise(model)
        if path is not None and model.device.type != "meta":
            check_rows(model, noise, self._embed_rows, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        require_inputs(raw, ["query", "candidates"], self)
        query, *candidates = (self._ids(text) for text in (raw["query"], *raw["candidates"]))
        return {"query": query, "candidates": pad_stack(candidates, self.tokenizer.pad_token_id)}

    def _ids(self, text: str) -> Tensor:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return torch.tensor([*ids, self.tokenizer.eos_token_id], dtype=torch.long)  # an empty text has an embedding

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor]:
        sizes = {len(row["candidates"]) for row in observations}
        if len(sizes) > 1:
            raise ValueError(f"retriever: observations have {sorted(sizes)} candidates; give all the same number")
        padding, rows = self.tokenizer.pad_token_id, [row["candidates"].T for row in observations]
        candidates = pad_stack(rows, padding).transpose(1, 2).contiguous()
        return {"query": pad_stack([row["query"] for row in observations], padding), "candidates": candidates}

    def embed(self, ids: Tensor) -> Tensor:
        """Embed padded ids [M, L]: mean of the last hidden states, [M, D]."""
        return self._embed_rows(ids, (ids != self.tokenizer.pad_token_id).long())

    def _embed_rows(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def logits(self, observation: Mapping[str, Any]) -> Tensor:
        """Logits of the candidates of N collated observations, [N, C]."""
        candidates = observation["candidates"]
        embedded = self.embed(candidates.flatten(0, 1)).unflatten(0, candidates.shape[:2])
        return retrieval_logits(self.embed(observation["query"]), embedded, self.scale)

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        logits, greedy = self.logits(observation), sampling.decode == "argmax"
        uniform = noise.uniform(1).to(logits.device)[:, 0]
        place, logprob, _ = draw(logits, uniform, temperature=sampling.temperature, greedy=greedy)
        mask = torch.ones(len(logits), 1, dtype=torch.bool, device=logits.device)
        return Action(place[:, None], logprob[:, None], mask, place.tolist())

    def check_sampling(self, sampling: Sampling) -> None:
        super().check_sampling(sampling)
        if sampling.truncated:
            raise ValueError("sampling: the retriever draws from all candidates; leave out top_k, top_p and min_p")

    def forward(self, batch: Batch) -> PolicyOutput:
        logits = self.logits(batch.observation())[:, None]
        return PolicyOutput(*logprob_entropy(logits, batch["action"], batch["temperature"]))

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        return torch.tensor([int(output)], dtype=torch.long)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save encoder and tokenizer in transformers' format."""
        save_model(self.model, Path(folder))
        self.tokenizer.save_pretrained(folder)
        (Path(folder) / "mmrl_policy.json").write_text(json.dumps({"class": type(self).__name__}) + "\n")
