"""The networks of the small VLA policies: images to a few tokens, then a causal transformer over tokens and words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import timm
import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2Model

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


class ContextTransformer(nn.Module):
    """Causal transformer over [visual tokens, words, proprioception].

    Args:
        vocabulary: number of words.
        hidden_size, layers, heads, intermediate_size: of the transformer.
        proprio_dims: P.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {"transformer": "model", "proprio": "state_proj"}

    def __init__(
        self, vocabulary: int, hidden_size: int, layers: int, heads: int, intermediate_size: int, proprio_dims: int
    ):
        super().__init__()
        config = Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            # the usual std of 0.02 suits widths of thousands; here every layer would shrink its input
            initializer_range=hidden_size**-0.5,
            use_cache=False,
        )
        self.model = Qwen2Model(config)
        self.state_proj = nn.Linear(proprio_dims, hidden_size)

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The word vectors."""
        return self.model.embed_tokens

    def read(
        self, visual: Tensor, ids: Tensor, present: Tensor | None, proprio: Tensor, queries: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute features of all tokens [N, L', D], and their mask [N, L'].

        Tokens are visual [N, K, D], words (ids and present [N, L]), proprio [N, P], then queries [H, D]; `present` is
        None if no word is padding.
        """
        words = self.embed_tokens(ids)
        body = self.state_proj(proprio.to(words.dtype))[:, None]
        tokens = [visual.to(words.dtype), words, body]
        if queries is not None:
            tokens.append(queries.expand(len(ids), -1, -1))
        joined = torch.cat(tokens, dim=1)
        mask = torch.ones(joined.shape[:2], dtype=torch.long, device=joined.device)
        if present is not None:
            mask[:, visual.shape[1] : visual.shape[1] + ids.shape[1]] = present
        # positions skip padding, so that padding changes nothing
        position, token_mask = mask.cumsum(dim=1) - 1, mask.bool()
        causal_mask = None if present is None else _causal(token_mask)
        turned = self.model.rotary_emb(joined, position)
        for layer in self.model.layers:
            joined = layer(joined, attention_mask=causal_mask, position_ids=position, position_embeddings=turned)
        return self.model.norm(joined), token_mask


def _causal(mask: Tensor) -> Tensor:
    """Build the causal attention mask, bool [N, 1, L, L], without padding."""
    length = mask.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
    return before & mask[:, None, None]


class ActionTransformer(ContextTransformer):
    """ContextTransformer with one query per control step after the context, which gives A x B logits.

    Args:
        action_dims: A. chunk: H. bins: B. The others as of ContextTransformer.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {**ContextTransformer.renamed_weights, "queries": "query_embed"}

    def __init__(
        self,
        vocabulary: int,
        hidden_size: int,
        layers: int,
        heads: int,
        intermediate_size: int,
        action_dims: int,
        chunk: int,
        bins: int,
        proprio_dims: int,
    ):
        super().__init__(vocabulary, hidden_size, layers, heads, intermediate_size, proprio_dims)
        self.chunk, self.choices, self.bins = chunk, chunk * action_dims, bins
        self.query_embed = nn.Parameter(0.02 * torch.randn(chunk, hidden_size))
        self.head = nn.Linear(hidden_size, action_dims * bins)

    def forward(self, visual: Tensor, ids: Tensor, present: Tensor | None, proprio: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits [N, H * A, B] and the features [N, D] of the last query, which attends to all tokens."""
        hidden = self.read(visual, ids, present, proprio, self.query_embed)[0][:, -self.chunk :]
        return self.head(hidden).view(len(ids), self.choices, self.bins), hidden[:, -1]
