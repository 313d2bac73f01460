"""OpenVLA-OFT with action tokens as a policy for cloning and RL; inputs and files of all its heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from mmrl.core.types import Observation
from mmrl.policies.processor import Processor
from mmrl.policies.vla.openvla.reading import OpenVLAReading, resolve_units
from mmrl.policies.vla.openvla_oft.model import Head
from mmrl.policies.vla.openvla_oft.network import OpenVLAOFTNetwork
from mmrl.policies.vla.pretrained.loading import OWN
from mmrl.policies.vla.pretrained.policy import PretrainedVLA
from mmrl.policies.vla.pretrained.token.policy import TokenVLAPolicy


class OpenVLAOFTInputs(PretrainedVLA):
    """What the policies have in common: files, units, and proprioception clipped to the range of the statistics."""

    reading: OpenVLAReading
    network: OpenVLAOFTNetwork
    unnorm_key: str | None
    crop: float
    statistics: Literal["quantile", "min_max"]
    bidirectional: bool
    head: Head = "tokens"

    def _load(self, reader: str | None, dtype: str, attention: str) -> tuple[OpenVLAOFTNetwork, OpenVLAReading]:
        parts = (self.proprio_dims, self.head, self.action_dims)
        model = OpenVLAOFTNetwork.load_parallel(self.path, dtype, attention, *parts)
        options = (self.unnorm_key, self.statistics, self.proprio_dims > 0, self.crop)
        reading = OpenVLAReading(self.path, reader, self.cameras, *options)
        return OpenVLAOFTNetwork(model, self.bidirectional, len(self.cameras)), reading

    def _resolve(self, given: Processor | None) -> Processor:
        return resolve_units(self.reading, given, Path(self.path) / OWN)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        encoded = super().encode(raw)
        scaled = self.proprio_dims and "proprio" in self.processor.vectors
        return {**encoded, "proprio": encoded["proprio"].clamp(-1, 1)} if scaled else encoded


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
