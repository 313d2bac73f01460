"""Small causal transformer over image, instruction and proprioception tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2Model


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
