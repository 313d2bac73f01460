"""Scoring policies: predict one number for an answer, such as a reward model."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from mmrl.core.batch import Batch, pad_stack
from mmrl.core.errors import check_at_least
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling, assistant_message
from mmrl.files.pretrained import build_pretrained, load_pretrained
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.control.encoder import perceptron
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.checks.chat_template import chat_template_error
from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.conversation import ChatFields, refuse_fields
from mmrl.policies.text.fidelity import check_rows
from mmrl.policies.text.fidelity.idle_weights import has_idle_weights
from mmrl.policies.text.loading import (
    check_tokenizer,
    checkpoint_error,
    list_noise,
    load_model,
    remove_noise,
    save_model,
)
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.policies.text.tokenizer import join_messages, set_pad_token
from mmrl.policies.weights import fill, read_weights

HEADS = ("score", "classifier")
"""Beginnings of the names that transformers gives to the head of a sequence classifier."""


class ScoringPolicy(Policy):
    """Sequence classifier of transformers: one or several heads score a prompt and an answer.

    `act` returns the score, `forward` predicts it as the row's value; the row's one choice is a placeholder. Of several
    heads both are the mean, and the heads' scores are `head_scores` [1, K] of a completion and `scores` of the output:
    an ensemble on one network, or labels of their own. With
    `hidden`, the language model is frozen and only a perceptron on the last token's state is trained; each answer is
    then embedded once, when it is encoded. The model keeps the attention of transformers, without a cache and without
    sharing; padding on the right and training without noise are compared with the untouched model at load.

    Args:
        path: hub id or folder of a classifier with its tokenizer; for a language model, the head is initialised at
            random.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        hidden: widths of a perceptron on frozen embeddings; None trains the whole classifier.
        dtype: of the loaded weights.
        heads: number of scores, or their names, which the saved classifier has as `id2label`.
        features: also give the last token's state [N, D] as `features` of the output, for terms that read it.
    """

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        hidden: list[int] | None = None,
        dtype: str = "float32",
        heads: int | list[str] = 1,
        features: bool = False,
    ):
        super().__init__()
        self.heads, names = read_heads(heads)
        self.features = features
        if features and hidden is not None:
            raise ValueError("policy.features=true needs a network that is trained, and policy.hidden freezes it")
        if path is None and config is None:
            raise ValueError("policy: give `path` (a hub id or a folder) or `config` (an architecture)")
        self.path = path
        if path is not None:
            with checkpoint_error(path):
                self.tokenizer: Any = check_tokenizer(load_pretrained(AutoTokenizer, **locate_checkpoint(path)))
                # for a language model, the head is initialised at random
                model = load_model(AutoModelForSequenceClassification, path, HEADS, num_labels=self.heads, dtype=dtype)
        else:
            self.tokenizer = character_tokenizer()
            options = dict(config or {})
            model_config = build_config(
                options.pop("model_type", "qwen2"), options, **special_ids(self.tokenizer), num_labels=self.heads
            )
            model = build_pretrained(AutoModelForSequenceClassification, model_config, dtype=dtype)
        set_pad_token(self.tokenizer, str(path))
        model.config.pad_token_id = self.tokenizer.pad_token_id
        if names:
            model.config.id2label = dict(enumerate(names))
            model.config.label2id = {name: number for number, name in enumerate(names)}
        noise = list_noise(model)
        self.model: Any = remove_noise(model)
        if path is not None and model.device.type != "meta":
            check_rows(model, noise, self._score_rows, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)
        width = model.config.get_text_config().hidden_size
        self.head: nn.Module | None = None
        if hidden is not None:
            widths = [width, *hidden]
            self.head = nn.Sequential(perceptron(widths, nn.ReLU), nn.Linear(widths[-1], self.heads))
            self.model.requires_grad_(False)
            saved = Path(path or "") / "score_head.safetensors"
            if path is not None and saved.exists():
                fill(self.head, read_weights(saved, "save the policy there again"), str(saved))
        self.leaves_weights_out = path is not None and has_idle_weights(self)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values", "features"} if init_args.get("features") else {"values"})

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset() if init_args.get("heads", 1) == 1 else frozenset({"head_scores"})

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        require_inputs(raw, ["messages", "answer"], self)
        ids = torch.tensor(self._ids(raw), dtype=torch.long)
        if self.head is None:
            return {"input_ids": ids}
        with torch.no_grad():
            ids = ids[None].to(self.device)
            embedding = self.model.base_model(input_ids=ids).last_hidden_state[0, -1]
        return {"embedding": embedding.float().cpu()}

    def _ids(self, raw: Mapping[str, Any]) -> list[int]:
        messages, tools = [*raw["messages"], assistant_message(raw["answer"])], raw.get("tools")
        if self.tokenizer.chat_template is None:
            refuse_fields(messages, tools, f"policy.path={self.path}")
            text = join_messages(messages, self.tokenizer, self.path)
        else:
            self._chat_fields.refuse_unread(messages, tools)
            text = self._render(messages, tools, False)
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]

    @functools.cached_property
    def _chat_fields(self) -> ChatFields:
        return ChatFields(self._render, f"policy.path={self.path}")

    def _render(self, messages: list[dict[str, Any]], tools: Any, opened: bool) -> str:
        options = {"tokenize": False, "add_generation_prompt": opened}
        with chat_template_error(self.path):
            return self.tokenizer.apply_chat_template(messages, tools=tools, **options)

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor]:
        if self.head is not None:
            return {"embedding": torch.stack([row["embedding"] for row in observations])}
        ids = [row["input_ids"] for row in observations]
        return {
            "input_ids": pad_stack(ids, self.tokenizer.pad_token_id),
            "attention_mask": pad_stack([torch.ones_like(row) for row in ids]),
        }

    def scores(self, observation: Mapping[str, Any]) -> Tensor:
        """Score collated answers: [N] the score, of several heads their mean."""
        return _mean(self.head_scores(observation))

    def head_scores(self, observation: Mapping[str, Any]) -> Tensor:
        """Score collated answers by every head, [N, K]."""
        if self.head is not None:
            return self.head(observation["embedding"])
        return self._score_rows(observation["input_ids"], observation["attention_mask"])

    def _score_rows(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=ids, attention_mask=mask).logits.float()

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        scores = self.head_scores(observation)
        mean = _mean(scores)
        nothing = torch.zeros(len(scores), 1, device=scores.device)
        extra = {} if self.heads == 1 else {"head_scores": scores[:, None]}
        return Action(nothing.long(), nothing, nothing == 0, mean.tolist(), values=mean, extra=extra)

    def forward(self, batch: Batch) -> PolicyOutput:
        observation, extra = batch.observation(), {}
        if self.features:
            ids, mask = observation["input_ids"], observation["attention_mask"]
            out = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
            last = mask.sum(1) - 1  # rows are padded on the right
            scores = out.logits.float()
            extra["features"] = out.hidden_states[-1][torch.arange(len(ids), device=ids.device), last].float()
        else:
            scores = self.head_scores(observation)
        if self.heads > 1:
            extra["scores"] = scores
        nothing = scores.new_zeros(batch["action"].shape)
        return PolicyOutput(nothing, nothing, _mean(scores), extra)

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        return torch.zeros(1, dtype=torch.long)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save classifier and tokenizer in transformers' format, and the perceptron."""
        folder = Path(folder)
        save_model(self.model, folder)
        self.tokenizer.save_pretrained(folder)
        if self.head is not None:
            save_file(self.head.state_dict(), folder / "score_head.safetensors")
        (folder / "mmrl_policy.json").write_text(json.dumps({"class": type(self).__name__}) + "\n")


def read_heads(heads: int | list[str]) -> tuple[int, list[str]]:
    """Number of heads, and their names; empty without names.

    Raises:
        ValueError: no head, or a name twice.
    """
    if isinstance(heads, int):
        check_at_least(1, "policy", heads=heads)
        return heads, []
    if not heads or len(set(heads)) != len(heads):
        raise ValueError(f"policy.heads must be a number or different names, got {heads}")
    return len(heads), list(heads)


def _mean(scores: Tensor) -> Tensor:
    """[N] of [N, K]; of one head its score as it is."""
    return scores[:, 0] if scores.shape[1] == 1 else scores.mean(1)
