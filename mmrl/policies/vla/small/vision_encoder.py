"""Encode images as a few tokens: a timm encoder, then attention maps conditioned on the instruction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import timm
import torch
from torch import Tensor, nn

SMALL_CONVNEXT: dict[str, Any] = {
    "out_indices": (0,),
    "depths": (1, 1, 1, 1),
    "dims": (48, 48, 48, 48),
    "stem_type": "patch",
    "conv_mlp": True,
    "act_layer": "relu",
}
"""One ConvNeXt block behind a 4-pixel patch stem: 24 thousand parameters, a 16x16 grid of a 64-pixel image."""


_LOUD = 8.0
"""Half the image in position units. Positions must vary more than the features beside them: with 1 instead of 8 the
transformer stays blind to them for many times as many steps."""


class VisionEncoder(nn.Module):
    """Encoder to K visual tokens, each from one attention map over the feature grid and its expected position.

    f = timm features, scaled and shifted per channel by the instruction (FiLM); m_k = softmax over the grid of
    sharpness * logits_k(f); token_k = MLP(sum_p m_k(p) f(p), sum_p m_k(p) xy(p)) + e_k.
    The expected position gives a linear layer access to the location.
    Source: Perez et al., "FiLM", arXiv 1709.07871, eq. 2; Levine et al., arXiv 1504.00702, section 5.1
    (spatial softmax).

    Args:
        name: of a timm model that supports features_only; the grid [h, w] is its first feature map in `out_indices`.
        arguments: further arguments of timm.create_model. An encoder whose input size is fixed, such as a vision
            transformer, needs `img_size` in pixels.
        text_size: width of the instruction vector.
        token_size: width of the visual tokens.
        tokens: K.
        sharpness: factor of the map logits, so that maps become narrow early in training.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {
        "features": "backbone",
        "project": "input_proj",
        "condition": "film",
        "maps": "map_proj",
        "token": "projector",
        "identity": "pos_embed",
    }

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        text_size: int,
        token_size: int,
        tokens: int,
        sharpness: float = 3.0,
    ):
        super().__init__()
        features: Any = timm.create_model(name, features_only=True, **arguments)
        self.backbone, size = features.to(memory_format=torch.channels_last), features.feature_info.channels()[0]
        self.sharpness = sharpness
        self.input_proj = nn.Linear(size, size)
        # instructions differ in one word of many; the norm enlarges the difference, which speeds up learning
        self.film = nn.Sequential(nn.LayerNorm(text_size), nn.Linear(text_size, 2 * size))
        self.map_proj = nn.Linear(size, tokens)
        self.projector = nn.Sequential(nn.Linear(size + 2, token_size), nn.GELU(), nn.Linear(token_size, token_size))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(tokens, token_size))

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Compute tokens [N, K, D] and map logits [N, K, h, w] from image uint8 [N, H, W, 3] and text [N, size]."""
        weight = self.input_proj.weight
        pixels = image.permute(0, 3, 1, 2).to(weight.dtype) / 127.5 - 1  # channels last in memory already
        grid = self.backbone(pixels)[0]
        height, width = grid.shape[2:]
        scale, shift = self.film(text)[:, None].chunk(2, dim=-1)
        features = torch.relu(self.input_proj(grid.flatten(2).transpose(1, 2)) * (1 + scale) + shift)  # [N, h*w, C]
        logits = self.sharpness * self.map_proj(features).transpose(1, 2)  # [N, K, h*w]
        attention = logits.softmax(dim=-1)
        where = torch.from_numpy(places(height, width)).to(features)
        pooled = torch.cat([attention @ features, attention @ where], dim=-1)
        return self.projector(pooled) + self.pos_embed, logits.unflatten(2, (height, width))


@lru_cache(maxsize=8)
def places(height: int, width: int) -> np.ndarray:
    """Return centres [height * width, 2] (x to the right, y down) of the grid's cells, in [-8, 8], row by row."""
    y = (2 * torch.arange(height) + 1) / height - 1
    x = (2 * torch.arange(width) + 1) / width - 1
    return (_LOUD * torch.stack([x.repeat(height), y.repeat_interleave(width)], dim=-1)).numpy()
