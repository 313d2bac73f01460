"""Tulu 3 RLVR: a constant reward for a verified answer, and a value model that starts from a reward model.

Lambert et al., "Tulu 3: Pushing Frontiers in Open Language Model Post-Training", 2024, arXiv:2411.15124, section 6.

- alpha for a verified answer, a penalty for one that does not end: `VerifiableReward`
- V starts as the network and the head of a reward model, V(prompt, y_<t) = r(prompt, y_<t): `ValueModel`
- PPO takes its values from that model and trains it: `ModelValues`, `ModelValue`
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from mmrl.annotators.logprobs import ForwardAnnotator, score_rows
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, PolicyOutput
from mmrl.files.pretrained import load_pretrained, load_whole
from mmrl.objectives.value import SquaredValue
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.loading import build_value_head, checkpoint_error
from mmrl.rewards.compose import WeightedSum


@dataclass(frozen=True)
class VerifiableReward(WeightedSum):
    """Reward of an episode: alpha if the verifier passes else 0, or `unfinished` where the answer was cut off.

    alpha is the weight of the verifier's score, {exact: 10.0}. Source: Tulu 3, 2024, equation 8 (alpha = 10), and the
    penalty of answers without an end-of-sequence token, arXiv:2411.15124.

    Args:
        weights: by name of the score.
        unfinished: reward of an answer without an end-of-sequence token.
    """

    unfinished: float = -10.0

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        rewards = super().__call__(group)
        return [self.unfinished if e.ended == "length" else reward for e, reward in zip(group, rewards)]


class ValueModel(L.Callback):
    """Give the learner a value model of its own, one of `model.auxiliary_models`.

    It is the policy's network with a value head. It starts from a reward model, whose score of the text before a token
    is then the token's value, or, without one, from the policy's weights with a head that predicts 0.
    Source: Tulu 3, 2024, section 6, arXiv:2411.15124.

    Args:
        path: folder of a sequence classifier with one label, of the policy's architecture and tokenizer, such as
            `policy` of the run of a reward model; null for the policy's weights.
        name: of the model in `model.auxiliary_models`.
    """

    def __init__(self, path: str | None = None, name: str = "value"):
        self.path, self.name = path, name

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Build the model before the learner copies its policy for the names that have no model."""
        learner: Any = pl_module
        if stage != "fit" or self.name in learner.models:
            return
        if self.name not in learner.auxiliary_models:
            raise ConfigError(
                f"trainer.callbacks.value_model: model.auxiliary_models has no {self.name!r}, which the callback "
                "builds; add it with its learning rate"
            )
        resumes = trainer.ckpt_path is not None  # the checkpoint has the weights
        learner.models[self.name] = build_value_model(learner.policy, None if resumes else self.path)


def build_value_model(policy: Any, path: str | None) -> Any:
    """Copy a text policy and give the copy a value head, both with the weights of a reward model if there is one.

    Raises:
        ConfigError: the policy has adapters or a value head, or the reward model is another network.
    """
    if hasattr(policy.model, "peft_config"):
        raise ConfigError(
            "trainer.callbacks.value_model: a value model of its own has all weights, and the policy has adapters; "
            "leave policy.lora out"
        )
    if policy.value_head is not None:
        raise ConfigError("trainer.callbacks.value_model gives values; set policy.value_head=false")
    model = copy.deepcopy(policy)
    parameter = next(model.model.parameters())
    model.value_head = build_value_head(model.hidden_size, None).to(parameter.device)
    if not model.model.config.get_text_config().tie_word_embeddings:
        model.model.get_output_embeddings().requires_grad_(False)  # no value depends on it
    if path is not None and not parameter.is_meta:
        _load_reward_model(model, path)
    return model


def _load_reward_model(model: Any, path: str) -> None:
    with checkpoint_error(path):
        tokenizer = load_pretrained(AutoTokenizer, **locate_checkpoint(path))
        classifier = load_whole(AutoModelForSequenceClassification, path)
    place = f"trainer.callbacks.value_model.path={path}"
    if tokenizer.get_vocab() != model.tokenizer.get_vocab():
        raise ConfigError(f"{place}: its tokenizer is not the policy's, so it would read other text; train it on one")
    if classifier.config.num_labels != 1:
        raise ConfigError(f"{place}: the classifier has {classifier.config.num_labels} labels; a value is one number")
    ours, theirs = model.model.base_model, classifier.base_model
    shapes = [{name: tuple(each.shape) for name, each in part.state_dict().items()} for part in (ours, theirs)]
    if shapes[0] != shapes[1]:
        name = next(n for n in [*shapes[0], *shapes[1]] if shapes[0].get(n) != shapes[1].get(n))
        raise ConfigError(
            f"{place}: it is another network than the policy: {name} has the shape {shapes[1].get(name)}, and "
            f"{shapes[0].get(name)} in the policy; train a reward model from a policy of this size"
        )
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        model.value_head.weight.copy_(classifier.score.weight)
        bias = classifier.score.bias
        model.value_head.bias.copy_(torch.zeros(1) if bias is None else bias)


@dataclass(frozen=True, kw_only=True)
class ModelValues(ForwardAnnotator):
    """Values of the stored choices under a value model of its own, before this iteration's updates.

    Args:
        model: one of `model.auxiliary_models`.
    """

    model: str

    def writes(self) -> frozenset[str]:
        return frozenset({"values"})

    def models(self) -> frozenset[str]:
        return frozenset({self.model})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        if self.model not in ctx.models:
            raise KeyError(f"annotator values: the learner has no model {self.model!r}, only {sorted(ctx.models)}")
        values = score_rows(ctx.models[self.model], batch, _values, self.rows, ctx.device)
        return batch.with_columns(values=values)


@dataclass(frozen=True, kw_only=True)
class ModelValue(SquaredValue):
    """Half the squared error of the return that a value model of its own predicts.

    Args:
        clip: as in `SquaredValue`.
        model: one of `model.auxiliary_models`.
    """

    model: str

    def needs(self) -> frozenset[str]:
        return frozenset()  # of the policy

    def others(self) -> frozenset[str]:
        return frozenset({self.model})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return super().__call__(out.other(self.model, "model_value"), batch)


def _values(out: PolicyOutput) -> Tensor:
    if out.values is None:
        raise ValueError("annotator values: the model predicts no values; add the callback ValueModel, which builds it")
    return out.values
