"""OpenVLA-OFT as policies for cloning and RL: with action tokens, or with the head for L1 regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from mmrl.policies.processor import Processor
from mmrl.policies.vla.chain import ChainPolicy, EncodedContext, Prefix
from mmrl.policies.vla.chains import Chain, GaussianChunk
from mmrl.policies.vla.openvla.reading import OpenVLAReading, resolve_units
from mmrl.policies.vla.openvla_oft.network import OpenVLAOFTNetwork
from mmrl.policies.vla.pretrained.policy import OWN, PretrainedVLA
from mmrl.policies.vla.token_vla.policy import TokenVLAPolicy
from mmrl.policies.vla.value import StateValue


class OpenVLAOFTInputs(PretrainedVLA):
    """What both policies have in common: files, units, and proprioception clipped to the range of the statistics."""

    reading: OpenVLAReading
    network: OpenVLAOFTNetwork
    unnorm_key: str | None
    crop: float
    statistics: Literal["quantile", "min_max"]
    bidirectional: bool
    regression = False  # whether there is a head that predicts numbers

    def _load(self, reader: str | None, dtype: str, attention: str) -> tuple[OpenVLAOFTNetwork, OpenVLAReading]:
        dims = self.action_dims if self.regression else 0
        model = OpenVLAOFTNetwork.load_parallel(self.path, dtype, attention, self.proprio_dims, dims)
        options = (self.unnorm_key, self.statistics, self.proprio_dims > 0, self.crop)
        reading = OpenVLAReading(self.path, reader, self.cameras, *options)
        return OpenVLAOFTNetwork(model, self.bidirectional), reading

    def _resolve(self, given: Processor | None) -> Processor:
        return resolve_units(self.reading, given, Path(self.path) / OWN)

    def _proprio(self, given: Any) -> Tensor:
        proprio = super()._proprio(given)
        return proprio.clamp(-1, 1) if "proprio" in self.processor.vectors else proprio


class OpenVLAOFTPolicy(OpenVLAOFTInputs, TokenVLAPolicy):
    """OpenVLA-OFT with action tokens: all numbers of a chunk are sampled at once, independent given the context.

    Published weights: those of SimpleVLA-RL and RLinf, whose RL scores such tokens; openvla/openvla-7b is a
    start for cloning. It was compared with the original computation at tiny sizes only.
    Source: Kim et al., "OpenVLA-OFT", 2024, section 4.1, arXiv:2502.19645; Li et al., "SimpleVLA-RL", 2025, section 3,
    arXiv:2509.09674. Differs: cloning is over the action tokens, not over all words.

    Args:
        unnorm_key: dataset whose statistics are in use; None where the checkpoint has one.
        crop: fraction of the image's area that is kept around its centre; 0.9 for checkpoints that were fine-tuned on
            randomly cropped images.
        statistics: what is -1 and 1 to the network: "quantile" q01 and q99, "min_max" (ALOHA) the extremes.
        bidirectional: every token attends to every other one, as in the paper; False for checkpoints that were trained
            with causal attention.
    """

    def __init__(
        self,
        path: str,
        unnorm_key: str | None = None,
        crop: float = 1.0,
        statistics: Literal["quantile", "min_max"] = "quantile",
        bidirectional: bool = True,
        **kwargs: Any,
    ):
        self.unnorm_key, self.crop, self.statistics, self.bidirectional = unnorm_key, crop, statistics, bidirectional
        super().__init__(path, **kwargs)


class OpenVLAOFTRegressionPolicy(OpenVLAOFTInputs, ChainPolicy):
    """OpenVLA-OFT with its head for L1 regression: a Gaussian chunk around the numbers that the head predicts.

    Cloning is by the absolute error (`objective.terms.imitation.power=1`), evaluation acts with the mean, which is the
    original's action. The original has no probability; RL here explores with a standard deviation that a layer of its
    own learns. Published weights: path=moojink/openvla-7b-oft-finetuned-libero-spatial, and others of its authors; with
    cameras=[image,wrist_image] and proprio_dims=8.
    Source: Kim et al., "OpenVLA-OFT", 2025, section 4.2, arXiv:2502.19645.

    Args:
        path: hub id or folder of a checkpoint.
        chain: a Gaussian chunk.
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
    regression = True

    def __init__(
        self,
        path: str,
        chain: Chain = GaussianChunk(),  # noqa: B008
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
        if chain.prediction_type != "mean":
            raise ValueError(
                f"policy.chain {type(chain).__name__} needs a network that predicts the {chain.prediction_type}, but "
                "this head predicts the numbers themselves: take GaussianChunk"
            )
        self.unnorm_key, self.crop, self.statistics, self.bidirectional = unnorm_key, crop, statistics, bidirectional
        self.path, self.chain, self.critic, self.cameras = path, chain, critic, tuple(cameras)
        self.action_dims, self.chunk, self.proprio_dims = action_dims, chunk, proprio_dims
        self._build(reader, dtype, attention, processor, gradient_checkpointing, freeze_vision, lora)
        # actions of simulators and scaled extremes are bounded by 1, those scaled by quantiles are not
        self.bound = 1.0 if self.processor.action.kind in ("identity", "min_max") else None
        width = self.network.width
        self.value_head = StateValue(width, min(width, 512)) if value_head else None
        self.log_std = nn.Linear(width * action_dims, action_dims)
        nn.init.zeros_(self.log_std.weight)
        nn.init.zeros_(self.log_std.bias)
        self._load_heads()

    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        hidden = self.network.decode(self._prepare(observation), self.chunk * self.action_dims)
        features = hidden.unflatten(1, (self.chunk, self.action_dims)).flatten(2)
        if self.value_head is None:
            return EncodedContext((features,))
        state = hidden[:, 0] if self.critic == "shared" else hidden[:, 0].detach()
        return EncodedContext((features,), self.value_head(state.float()))

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        (features,) = prefix
        log_std = self.log_std(features.to(self.log_std.weight.dtype)).float()
        return self.network.model.action_head(features).float(), log_std

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Return the chunk [H, A]: a chain without transitions."""
        return self._scale_demonstration(output)

    def contract(self) -> dict[str, Any]:
        """Return the processor, the cameras, and the shape of an action."""
        sizes = {"action.chunk": self.chunk, "action.dims": self.action_dims}
        return {**self.processor.contract(), "cameras": list(self.cameras), **sizes}
