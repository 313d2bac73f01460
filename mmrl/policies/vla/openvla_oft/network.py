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
from mmrl.policies.vla.openvla_oft.checkpoint import COMPONENTS, load_oft, save_oft
from mmrl.policies.vla.openvla_oft.model import Head, OpenVLAOFT
from mmrl.policies.vla.pretrained.token.network import Choose, Scores

STOP = 2
"""Id of Llama's end token, which follows the placeholders."""


class OpenVLAOFTNetwork(OpenVLANetwork):
    """Calls an `OpenVLAOFT`. Tokens: first word, patches, proprioception, further words, padding, last word,
    placeholders, end token. Number t is read from the token before its placeholder, as in a causal model.

    Args:
        model: of `load_parallel`.
        bidirectional: every token attends to every other one; False keeps the causal attention of OpenVLA.
        cameras: number of images.
    """

    def __init__(self, model: Any, bidirectional: bool = True, cameras: int = 1):
        super().__init__(model)
        self.bidirectional, self.cameras = bidirectional, cameras

    @classmethod
    def load_parallel(
        cls, path: str, dtype: str, attention: str, proprio_dims: int, head: Head = "tokens", action_dims: int = 0
    ) -> nn.Module:
        """Load the checkpoint with the components that are asked for; arguments as of `OpenVLAOFT` and `load`."""
        settings = read_settings(path)
        return load_oft(lambda: OpenVLAOFT(settings, attention, proprio_dims, head, action_dims), path, dtype)

    @classmethod
    def load(cls, path: str, dtype: str, attention: str) -> nn.Module:
        return cls.load_parallel(path, dtype, attention, 0)

    @staticmethod
    def save(model: Any, folder: Path) -> None:
        save_oft(model, folder)

    @property
    def unused(self) -> Sequence[nn.Module]:
        writes = self.model.action_head is None
        return [*super().unused, *([] if writes else [self.model.language_model.lm_head])]

    @property
    def image_tokens(self) -> int:
        """Return the number of tokens between the first word and the others: patches, and proprioception."""
        patches = self.model.vision_backbone.featurizer.patch_embed.num_patches
        return self.cameras * patches + (self.model.proprio_projector is not None)

    @property
    def whole(self) -> Sequence[nn.Module]:
        parts = (getattr(self.model, name) for name in COMPONENTS)
        return [part for part in parts if part is not None]

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
        return self.read_actions(context, mask, context.new_zeros(len(context), count, context.shape[2]))

    def read_actions(self, context: Tensor, mask: Tensor, actions: Tensor) -> Tensor:
        """Run the language model on contexts, embedded actions [N, T, width] and the end token: features of actions.

        Args:
            context: [N, S, width], the last word at the end.
            mask: [N, S].
            actions: zeros, or noisy actions.
        """
        count = actions.shape[1]
        tokens = torch.cat([context, actions.to(context.dtype), self.model.embed_stop(len(context), STOP)], dim=1)
        hidden = self.run(tokens, pad(mask, (0, count + 1), value=1))
        return hidden[:, -count - 2 : -2]

    def decode_noisy(self, context: Tensor, mask: Tensor, x: Tensor, timestep: Tensor) -> Tensor:
        """Compute features [M, H * A, width] of noisy chunks x [M, H, A]; the timestep is a token before the words."""
        actions, time = self.model.embed_noisy(x, timestep)
        place = 1 + self.image_tokens
        tokens = torch.cat([context[:, :place], time.to(context.dtype), context[:, place:]], dim=1)
        return self.read_actions(tokens, torch.cat([mask[:, :1], mask], dim=1), actions)

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
