"""Process reward models: predict of every step of an answer whether it is right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AutoModelForTokenClassification, AutoTokenizer

from mmrl.core.batch import Batch, pad_stack
from mmrl.core.messages import tokenize_steps
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.files.pretrained import build_pretrained, load_pretrained
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.fidelity import check_rows
from mmrl.policies.text.loading import (
    check_tokenizer,
    checkpoint_error,
    list_noise,
    load_model,
    remove_noise,
    save_model,
)
from mmrl.policies.text.scorer import HEADS
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.policies.text.tokenizer import set_pad_token


class StepScoringPolicy(Policy):
    """Token classifier of transformers with the labels wrong (0) and right (1): a process reward model.

    A row is an answer, its choices are the steps, and the label of a step is predicted at the last token of the
    separator after it. `act` gives the probability of right for each step, `forward` the log-probabilities of the
    stored labels, so that imitation of labels is the cross-entropy at the separators. Padding on the right and training
    without noise are compared with the untouched model at load.

    Args:
        path: hub id or folder of a token classifier with its tokenizer; for a language model, the head is initialised
            at random.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        separator: text after each step.
        dtype: of the loaded weights.
    """

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        separator: str = "\n",
        dtype: str = "float32",
    ):
        super().__init__()
        self.path, self.separator = path, separator
        if path is None and config is None:
            raise ValueError("policy: give `path` (a hub id or a folder) or `config` (an architecture)")
        if path is not None:
            with checkpoint_error(path):
                self.tokenizer: Any = check_tokenizer(load_pretrained(AutoTokenizer, **locate_checkpoint(path)))
                model = load_model(AutoModelForTokenClassification, path, HEADS, num_labels=2, dtype=dtype)
        else:
            self.tokenizer = character_tokenizer()
            options = dict(config or {})
            kind = options.pop("model_type", "qwen2")
            model_config = build_config(kind, options, **special_ids(self.tokenizer), num_labels=2)
            model = build_pretrained(AutoModelForTokenClassification, model_config, dtype=dtype)
        set_pad_token(self.tokenizer, str(path))
        noise = list_noise(model)
        self.model: Any = remove_noise(model)
        if path is not None and model.device.type != "meta":
            check_rows(model, noise, self._score_rows, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        require_inputs(raw, ["messages", "steps"], self)
        ids, ends = tokenize_steps(self.tokenizer, raw["messages"], raw["steps"], self.separator)
        return {"input_ids": torch.tensor(ids), "step_ends": torch.tensor(ends)}

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor]:
        ids = [row["input_ids"] for row in observations]
        return {
            "input_ids": pad_stack(ids, self.tokenizer.pad_token_id),
            "attention_mask": pad_stack([torch.ones_like(row) for row in ids]),
            "step_ends": pad_stack([row["step_ends"] for row in observations], -1),
        }

    def _step_logprobs(self, observation: Mapping[str, Any]) -> Tensor:
        """Log-probabilities of both labels at the end of each step, [N, S, 2]; those beyond a row's steps are any."""
        logits = self.model(input_ids=observation["input_ids"], attention_mask=observation["attention_mask"]).logits
        ends = observation["step_ends"].clamp(min=0)[..., None].expand(-1, -1, logits.shape[-1])
        return logits.float().gather(1, ends).log_softmax(-1)

    def _score_rows(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Log-probabilities of both labels in the middle and at the end of rows padded on the right, [N, 4]."""
        lengths = mask.sum(-1)
        ends = torch.stack([lengths // 2, lengths - 1], dim=-1)
        return self._step_logprobs({"input_ids": ids, "attention_mask": mask, "step_ends": ends}).flatten(1)

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        logprobs, mask = self._step_logprobs(observation), observation["step_ends"] >= 0
        right, label = logprobs[..., 1].exp(), logprobs.argmax(-1)
        output = [row[valid].tolist() for row, valid in zip(right, mask)]
        return Action(label, logprobs.gather(2, label[..., None])[..., 0], mask, output)

    def forward(self, batch: Batch) -> PolicyOutput:
        logprobs, labels = self._step_logprobs(batch.observation()), batch["action"]
        # (N, T, 2): steps of the observation and choices of the batch are padded alone
        logprobs = pad(logprobs, (0, 0, 0, labels.shape[1] - logprobs.shape[1]))
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return PolicyOutput(logprobs.gather(2, labels.clamp(0, 1)[..., None])[..., 0], entropy)

    def encode_demonstration(self, raw: Mapping[str, Any], output: Sequence[bool]) -> Tensor:
        return torch.tensor([int(label) for label in output], dtype=torch.long)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save classifier and tokenizer in transformers' format."""
        folder = Path(folder)
        save_model(self.model, folder)
        self.tokenizer.save_pretrained(folder)
        (folder / "mmrl_policy.json").write_text(json.dumps({"class": type(self).__name__}) + "\n")
