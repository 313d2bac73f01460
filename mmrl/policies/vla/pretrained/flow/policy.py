"""Base class of flow VLAs on a pretrained vision-language model, for cloning and RL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch, Ragged, concatenate_columns
from mmrl.core.types import Observation
from mmrl.policies.processor import Processor
from mmrl.policies.text.loading import checkpoint_error
from mmrl.policies.vla.chain import ChainPolicy, EncodedContext
from mmrl.policies.vla.chains import Chain
from mmrl.policies.vla.chains.base import Prefix, check_teacher
from mmrl.policies.vla.pretrained.flow.insulation import check_insulation, insulate
from mmrl.policies.vla.pretrained.flow.kept_context import (
    KEPT,
    MEAN,
    check_kept,
    collate_kept,
    keep_context,
    kept_context,
)
from mmrl.policies.vla.pretrained.flow.network import FlowVLANetwork, Sizes
from mmrl.policies.vla.pretrained.flow.padding import action_padding
from mmrl.policies.vla.pretrained.loading import add_lora_to_open, freeze
from mmrl.policies.vla.pretrained.policy import PretrainedVLA, mean_features
from mmrl.policies.vla.pretrained.reading import PretrainedReading
from mmrl.policies.vla.value import StateValue

ROWS = 64  # contexts that are read in one pass for demonstrations


class FlowVLAPolicy(PretrainedVLA, ChainPolicy):
    """Flow VLA: a vision-language model reads images and an instruction once, an action expert denoises the chunk.

    A subclass names two classes: `network_class` calls the pretrained model, `reading_class` computes its inputs.

    The chain has the model's whole state, `horizon` steps of all its dimensions; the `chunk` first steps of the
    simulator's dimensions are choices, the others follow the flow without noise, and nothing is trained on them. See
    ChainPolicy. Cloning repeats a demonstrated chunk's last action up to the model's horizon; the chain samples the
    timesteps (Beta(1.5, 1) as in pi0).

    Args:
        path: hub id or folder of a checkpoint.
        chain: a flow, since the model predicts a velocity.
        teacher: sampler of a frozen copy whose chunks are the distillation targets; None for `chain`.
        action_dims: A, numbers per control step, at most the model's max_action_dim.
        chunk: H, control steps per decision, at most the horizon.
        proprio_dims: length of the proprioception vector, at most the model's max_state_dim.
        cameras: observations that are images, in the order in which the model reads them.
        horizon: control steps that the model predicts; None for the checkpoint's chunk_size. No weight depends on
            it, and the cost of a transition grows with it.
        reader: hub id or folder of what `path` lacks: tokenizer and image processor of pi0, tokenizer and sizes of the
            vision-language model of SmolVLA; None for what the checkpoint has or names.
        timesteps_per_sample: denoising timesteps drawn for each demonstrated row, in one pass.
        freeze_vision: the image tower and its projection stay fixed.
        freeze_context: the whole vision-language model stays fixed and is read without gradient; the expert learns.
        keep_contexts: keep what the frozen vision-language model has read while sampling, in host memory, so that no
            later pass over the rows reads it again: annotators, and every update epoch. Models that score the rows,
            such as the reference, take it for their own, so their vision-language model must have equal weights.
        lora: arguments of `peft.LoraConfig`, for the linear layers of every part that is not frozen; exports are
            merged. None trains all weights of those parts.
        knowledge_insulation: gradients of the expert do not enter the vision-language model, which learns from the
            critic alone (critic="shared"). Source: Driess et al., "Knowledge insulating", 2025, arXiv:2505.23705;
            differs: the model learns no tokens beside it.
        gradient_checkpointing: trade time for memory in the learn step.
        value_head: predict the return of the state, per row, from the mean of the context and proprioception.
        critic: whether that gradient trains the context too ("shared") or not ("detached").
        dtype: of the loaded weights, as transformers names it; the compute precision is the Trainer's.
        attention: transformers attention implementation.
        processor: between the simulator or dataset and the network; None for what the checkpoint says.
    """

    heads: ClassVar[tuple[str, ...]] = ("value_head", "log_std")
    optional = heads
    network_class: ClassVar[type[FlowVLANetwork]]
    reading_class: ClassVar[type[PretrainedReading]]

    def __init__(
        self,
        path: str,
        chain: Chain,
        teacher: Chain | None = None,
        action_dims: int = 7,
        chunk: int = 5,
        proprio_dims: int = 8,
        cameras: Sequence[str] = ("image",),
        horizon: int | None = None,
        reader: str | None = None,
        timesteps_per_sample: int = 1,
        freeze_vision: bool = False,
        freeze_context: bool = True,
        keep_contexts: bool = False,
        lora: dict[str, Any] | None = None,
        knowledge_insulation: bool = False,
        gradient_checkpointing: bool = False,
        value_head: bool = False,
        critic: Literal["shared", "detached"] = "detached",
        dtype: str = "float32",
        attention: str = "sdpa",
        processor: Processor | None = None,
    ):
        super().__init__()
        if chain.prediction_type != "velocity":
            raise ValueError(
                f"policy.chain {type(chain).__name__} needs a network that predicts the {chain.prediction_type}, "
                "but this policy predicts a velocity: take FlowSDE, CPS, FlowNoise or FlowODE"
            )
        check_teacher(chain, teacher)
        check_insulation(knowledge_insulation, freeze_context, value_head and critic == "shared")
        check_kept(keep_contexts, freeze_context)
        self.knowledge_insulation, self.keep_contexts = knowledge_insulation, keep_contexts
        self.cached_inputs = frozenset({"images"}) if keep_contexts else frozenset()
        self.path, self.chain, self.teacher = path, chain, teacher
        self.timesteps_per_sample, self.critic = timesteps_per_sample, critic
        self.action_dims, self.chunk, self.proprio_dims = action_dims, chunk, proprio_dims
        self.cameras = tuple(cameras)
        with checkpoint_error(path):
            self.reading = self.reading_class(path, reader, self.cameras)
            model = self.network_class.load(path, reader, horizon, dtype, attention)
        self.network = self.network_class(model)
        sizes = self.network.sizes
        self.horizon = sizes.horizon
        self.action_padding = action_padding(sizes, action_dims, chunk, proprio_dims)
        self.processor = self._resolve(processor)
        # actions of simulators and scaled ranges are bounded by 1, actions scaled by quantiles or mean and std are not
        self.bound = 1.0 if self.processor.action.kind in ("identity", "min_max") else None
        if gradient_checkpointing:
            self.network.enable_gradient_checkpointing()
        context, vision = self.network.context, self.network.vision
        frozen = [*self.network.unused, *([context] if freeze_context else ()), *(vision if freeze_vision else ())]
        self.model = add_lora_to_open(freeze(self.network.model, frozen), lora)
        self._add_heads(sizes, value_head)

    def _add_heads(self, sizes: Sizes, value_head: bool) -> None:
        """Add the critic, and the std head of a chain that predicts it; load saved ones."""
        width = sizes.context_width
        self.value_head = StateValue(width + self.proprio_dims, min(width, 512)) if value_head else None
        self.log_std = nn.Linear(sizes.expert_width, sizes.action_dims) if self.chain.predicts_std else None
        if self.log_std is not None:  # the initial std is the middle of its range
            nn.init.zeros_(self.log_std.weight)
            nn.init.zeros_(self.log_std.bias)
        self._load_heads()

    # ---------------------------------------------------------------- inputs

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor | Ragged]:
        """Collate rows; shorter instructions are padded at the end, kept contexts are ragged."""
        contexts = collate_kept(observations)
        return {**super().collate(observations), **contexts}

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Return the chunk [H, A]: a chain without transitions."""
        return self._scale_demonstration(output)

    def contract(self) -> dict[str, Any]:
        return {**super().contract(), "action.horizon": self.horizon}

    # ---------------------------------------------------------------- the network of the chain

    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        if KEPT in observation:
            return self._encode_kept(observation)
        inputs = self._prepare(observation)
        proprio = inputs.pop("proprio")
        context = self.network.read(inputs)
        prefix = self.network.add_state(context, proprio)
        if self.knowledge_insulation:
            prefix = insulate(prefix, context.hidden)
        mean = None if self.value_head is None else mean_features(context.hidden, context.mask)
        cached_features: dict[str, Tensor | Ragged] = {}
        if self.keep_contexts and self.learns_from_rows and not torch.is_grad_enabled():
            cached_features = {KEPT: keep_context(context, self.network.tokens_axis)}
            cached_features |= {} if mean is None else {MEAN: mean}
        return EncodedContext(prefix, self._mean_values(mean, proprio), cached_features=cached_features)

    def _encode_kept(self, observation: Mapping[str, Any]) -> EncodedContext:
        """Encode contexts that were kept; what is trained after the vision-language model is computed again."""
        if not self.keep_contexts:
            raise ValueError(
                f"the rows have contexts that another policy kept, but the {type(self).__name__} of {self.path} has "
                "keep_contexts=false: set it true there if its vision-language model has the same weights, or set "
                "policy.keep_contexts=false"
            )
        context = kept_context(observation[KEPT], self.network.tokens_axis)
        proprio = observation["proprio"].float()
        prefix = self.network.add_state(context, proprio)
        return EncodedContext(prefix, self._mean_values(observation.get(MEAN), proprio))

    @torch.no_grad()
    def cache_features(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        if not self.keep_contexts:
            return {}
        columns = Batch(observation)
        parts = [self.encode_context(part).cached_features for part in columns.split(ROWS)]
        return {name: concatenate_columns([part[name] for part in parts]) for name in parts[0]}

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        hidden = self.network.decode_actions(prefix, x, time)
        log_std = None if self.log_std is None else self.log_std(hidden.to(self.log_std.weight.dtype)).float()
        return self.network.velocity(hidden).float(), log_std
