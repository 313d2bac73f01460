"""OpenVLA as a policy for cloning and RL; it loads and saves its authors' folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmrl.policies.processor import Processor
from mmrl.policies.vla.openvla.network import OpenVLANetwork
from mmrl.policies.vla.openvla.reading import OpenVLAReading, resolve_units
from mmrl.policies.vla.pretrained.loading import OWN
from mmrl.policies.vla.pretrained.token.policy import TokenVLAPolicy


class OpenVLAPolicy(TokenVLAPolicy):
    """OpenVLA: DINOv2 and SigLIP patches and a prompt, read by Llama 2, which writes action tokens one by one.

    Published weights: path=openvla/openvla-7b (7.5 B parameters), whose statistics are those of many datasets:
    `unnorm_key` names one, or `processor` the units of another robot. It was compared with the original computation at
    tiny sizes only. It reads one image and no proprioception.
    Source: Kim et al., "OpenVLA", 2024, arXiv:2406.09246. Differs: cloning is over the action tokens, not over all
    words, and does not train the end token.

    Args:
        unnorm_key: dataset whose statistics are in use; None where the checkpoint has one.
        crop: fraction of the image's area that is kept around its centre; 0.9 for checkpoints that were fine-tuned on
            randomly cropped images.
    """

    reading: OpenVLAReading

    def __init__(self, path: str, unnorm_key: str | None = None, crop: float = 1.0, **kwargs: Any):
        self.unnorm_key, self.crop = unnorm_key, crop
        super().__init__(path, **kwargs)

    def _resolve(self, given: Processor | None) -> Processor:
        return resolve_units(self.reading, given, Path(self.path) / OWN)

    def _load(self, reader: str | None, dtype: str, attention: str) -> tuple[OpenVLANetwork, OpenVLAReading]:
        if len(self.cameras) != 1 or self.proprio_dims:
            raise ValueError(
                f"OpenVLA reads one image and no proprioception, but policy.cameras is {list(self.cameras)} and "
                f"policy.proprio_dims {self.proprio_dims}; OpenVLA-OFT reads more: policy=openvla_oft"
            )
        network = OpenVLANetwork(OpenVLANetwork.load(self.path, dtype, attention))
        return network, OpenVLAReading(self.path, reader, self.cameras, self.unnorm_key, crop=self.crop)
