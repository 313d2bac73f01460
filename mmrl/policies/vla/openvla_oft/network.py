"""OpenVLA-OFT: all numbers of a chunk are decoded in one pass of the language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mmrl.policies.vla.openvla.network import OpenVLANetwork
from mmrl.policies.vla.openvla.settings import read_settings
from mmrl.policies.vla.openvla_oft.checkpoint import load_oft, save_oft
from mmrl.policies.vla.openvla_oft.model import OpenVLAOFT
from mmrl.policies.vla.token_vla.network import Choose, Scores

STOP = 2
"""Id of Llama's end token, which follows the placeholders."""


class OpenVLAOFTNetwork(OpenVLANetwork):
    """Calls an `OpenVLAOFT`. Tokens: first word, patches, proprioception, further words, padding, last word,
    placeholders, end token. Number t is read from the token before its placeholder, as in a causal model.

    Args:
        model: of `load_parallel`.
        bidirectional: every token attends to every other one; False keeps the causal attention of OpenVLA.
    """

    def __init__(self, model: Any, bidirectional: bool = True):
        super().__init__(model)
        self.bidirectional = bidirectional

    @classmethod
    def load_parallel(
        cls, path: str, dtype: str, attention: str, proprio_dims: int, regression_dims: int = 0
    ) -> nn.Module:
        """Load the checkpoint with the components that are asked for; arguments as of `OpenVLAOFT` and `load`."""
        settings = read_settings(path)
        return load_oft(lambda: OpenVLAOFT(settings, attention, proprio_dims, regression_dims), path, dtype)

    @classmethod
    def load(cls, path: str, dtype: str, attention: str) -> nn.Module:
        return cls.load_parallel(path, dtype, attention, 0)

    @staticmethod
    def save(model: Any, folder: Path) -> None:
        save_oft(model, folder)

    @property
    def unused(self) -> Sequence[nn.Module]:
        regresses = self.model.action_head is not None
        return [*super().unused, *([self.model.language_model.lm_head] if regresses else [])]

    @property
    def whole(self) -> Sequence[nn.Module]:
        return [part for part in (self.model.proprio_projector, self.model.action_head) if part is not None]

    def score(self, inputs: Mapping[str, Tensor], chosen: Tensor) -> Scores:
        hidden = self.decode(inputs, chosen.shape[1])
        return Scores(self.model.action_logits(hidden), hidden[:, 0])

    def sample(self, inputs: Mapping[str, Tensor], owner: Tensor, count: int, choose: Choose) -> Tensor:
        hidden = self.decode(inputs, count)
        choose(self.model.action_logits(hidden)[owner])
        return hidden[:, 0]

    def state(self, inputs: Mapping[str, Tensor], count: int) -> Tensor:
        return self.decode(inputs, count)[:, 0]

    def decode(self, inputs: Mapping[str, Tensor], count: int) -> Tensor:
        """Compute features [N, count, width] that the numbers of a chunk are read from."""
        context, mask = self.embed(inputs)
        rest = self.model.embed_placeholders(len(context), count, STOP).to(context.dtype)
        mask = pad(mask, (0, count + 1), value=1)
        hidden = self.run(torch.cat([context, rest], dim=1), mask)
        return hidden[:, -count - 2 : -2]

    def embed_images(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Embed what comes after the first word: the patches of all images, and proprioception where it is read."""
        images = super().embed_images(inputs)
        if self.model.proprio_projector is None:
            return images
        proprio = self.model.proprio_projector(inputs["proprio"].to(self.dtype))
        return torch.cat([images, proprio[:, None].to(images.dtype)], dim=1)

    def attention_mask(self, mask: Tensor, length: int) -> Tensor:
        """Return which keys [N, 1, length, K] a query attends to: all that are no padding; [N, K] if causal."""
        if not self.bidirectional:
            return mask
        allowed = mask.bool()[:, None, None].expand(-1, 1, length, -1)
        if self.model.language_model.config._attn_implementation == "sdpa":
            return allowed
        return torch.zeros_like(allowed, dtype=self.dtype).masked_fill(~allowed, torch.finfo(self.dtype).min)
