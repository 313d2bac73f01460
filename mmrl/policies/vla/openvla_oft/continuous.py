"""OpenVLA-OFT with its continuous heads as policies for cloning and RL: L1 regression and diffusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from mmrl.policies.processor import Processor
from mmrl.policies.vla.chain import ChainPolicy, EncodedContext
from mmrl.policies.vla.chains import Chain
from mmrl.policies.vla.chains.base import Prefix
from mmrl.policies.vla.openvla_oft.policy import OpenVLAOFTInputs
from mmrl.policies.vla.value import StateValue


class OpenVLAOFTChainPolicy(OpenVLAOFTInputs, ChainPolicy):
    """Base class of the continuous heads, whose numbers are read from the features of placeholders.

    Args:
        path: hub id or folder of a checkpoint.
        chain: how a chunk is sampled.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision; 8 of LIBERO, 25 of ALOHA.
        proprio_dims: length of the proprioception vector; 0 for checkpoints that do not read it.
        cameras: observations that are images, in the order in which the model reads them.
        unnorm_key: dataset whose statistics are in use; None where the checkpoint has one.
        crop: fraction of the image's area that is kept around its centre.
        statistics: which statistics are -1 and 1 to the network.
        bidirectional: every token attends to every other one, as in the paper.
        reader: hub id or folder of tokenizer and image settings; None for the checkpoint's.
        freeze_vision: the image encoder and its projection stay fixed.
        lora: arguments of `peft.LoraConfig`, for the linear layers of OpenVLA; heads are trained as a whole.
        gradient_checkpointing: trade time for memory in the learn step.
        value_head: predict the return of the state, per row, from the features that the first number is read from.
        critic: whether that gradient trains the model too ("shared") or not ("detached").
        dtype: of the loaded weights, as torch names it.
        attention: transformers attention implementation of the language model.
        processor: between the simulator or dataset and the network; None for what the checkpoint says.
    """

    heads: ClassVar[tuple[str, ...]] = ("value_head", "log_std")
    optional = heads
    prediction: ClassVar[str]  # of the head
    chains: ClassVar[str]  # that the head can be sampled by

    def __init__(
        self,
        path: str,
        chain: Chain,
        action_dims: int = 7,
        chunk: int = 8,
        proprio_dims: int = 8,
        cameras: Sequence[str] = ("image",),
        unnorm_key: str | None = None,
        crop: float = 1.0,
        statistics: Literal["quantile", "min_max"] = "quantile",
        bidirectional: bool = True,
        reader: str | None = None,
        freeze_vision: bool = False,
        lora: dict[str, Any] | None = None,
        gradient_checkpointing: bool = False,
        value_head: bool = False,
        critic: Literal["shared", "detached"] = "shared",
        dtype: str = "float32",
        attention: str = "sdpa",
        processor: Processor | None = None,
    ):
        super().__init__()
        if chain.prediction_type != self.prediction:
            raise ValueError(
                f"policy.chain {type(chain).__name__} needs a network that predicts the {chain.prediction_type}, but "
                f"this head predicts the {self.prediction}: take {self.chains}"
            )
        self.unnorm_key, self.crop, self.statistics, self.bidirectional = unnorm_key, crop, statistics, bidirectional
        self.path, self.chain, self.critic, self.cameras = path, chain, critic, tuple(cameras)
        self.action_dims, self.chunk, self.proprio_dims = action_dims, chunk, proprio_dims
        self._build(reader, dtype, attention, processor, gradient_checkpointing, freeze_vision, lora)
        # actions of simulators and scaled extremes are bounded by 1, those scaled by quantiles are not
        self.bound = 1.0 if self.processor.action.kind in ("identity", "min_max") else None
        width = self.network.width
        self.value_head = StateValue(width, min(width, 512)) if value_head else None
        self.log_std = nn.Linear(width * action_dims, action_dims) if chain.predicts_std else None
        if self.log_std is not None:
            nn.init.zeros_(self.log_std.weight)
            nn.init.zeros_(self.log_std.bias)
        self._load_heads()

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Return the chunk [H, A]: a chain without transitions."""
        return self._scale_demonstration(output)

    def _group_steps(self, hidden: Tensor) -> Tensor:
        """Join the features of a control step's tokens: [N, H * A, width] to [N, H, A * width]."""
        return hidden.unflatten(1, (self.chunk, self.action_dims)).flatten(2)


class OpenVLAOFTRegressionPolicy(OpenVLAOFTChainPolicy):
    """OpenVLA-OFT with its head for L1 regression: a Gaussian chunk around the numbers that the head predicts.

    Cloning is by the absolute error (`objective.terms.imitation.power=1`), evaluation acts with the mean, which is the
    original's action. The original has no probability; RL here explores with a standard deviation that a layer of its
    own learns. Published weights: path=moojink/openvla-7b-oft-finetuned-libero-spatial, and others of its authors; with
    cameras=[image,wrist_image] and proprio_dims=8.
    Source: Kim et al., "OpenVLA-OFT", 2025, section 4.2, arXiv:2502.19645.
    """

    head = "regression"
    prediction, chains = "mean", "GaussianChunk"

    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        hidden = self.network.decode(self._prepare(observation), self.chunk * self.action_dims)
        return EncodedContext((self._group_steps(hidden),), self._values(hidden[:, 0]))

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        (features,) = prefix
        assert self.log_std is not None
        log_std = self.log_std(features.to(self.log_std.weight.dtype)).float()
        return self.network.model.action_head(features).float(), log_std


class OpenVLAOFTDiffusionPolicy(OpenVLAOFTChainPolicy):
    """OpenVLA-OFT with its diffusion head: noisy actions take the places of the placeholders, the head predicts noise.

    The language model runs once per transition on context and actions, so `chain.steps` costs as many passes; the
    original takes 50 of 50 levels. Cloning is by the squared error of the noise.
    Source: Kim et al., "OpenVLA-OFT", 2025, section 4.2 and its code, arXiv:2502.19645. Differs: where a predicted
    action is clipped, the noise is that which fits the clipped one; timesteps are those from the noisiest on.
    """

    head = "diffusion"
    prediction, chains = "epsilon", "DDIM or DDPM"

    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        context, mask = self.network.embed(self._prepare(observation))
        if self.value_head is None:
            return EncodedContext((context, mask))
        return EncodedContext((context, mask), self._values(self.network.run(context, mask)[:, -1]))

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        context, mask = prefix
        timestep = time * self.chain.levels - 1  # the original counts levels from 0
        hidden = self.network.decode_noisy(context, mask, x, timestep)
        return self.network.model.action_head(self._group_steps(hidden)).float(), None
