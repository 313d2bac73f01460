"""The body of the action-token policy: a small causal transformer that answers a context with binned chunks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2Model


class ActionTransformer(nn.Module):
    """Logits of a chunk in one causal pass over [visual tokens, words, proprioception, queries].

    Query h stands for control step h and gives A x B logits.

    Args:
        vocabulary: number of words.
        hidden_size, layers, heads, intermediate_size: of the transformer.
        action_dims: A. chunk: H. bins: B. proprio_dims: P.
    """

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
        super().__init__()
        self.chunk, self.choices, self.bins = chunk, chunk * action_dims, bins
        config = Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            # the usual 0.02 suits widths of thousands: here every layer would shrink its input to nothing
            initializer_range=hidden_size**-0.5,
            use_cache=False,
        )
        self.transformer = Qwen2Model(config)
        self.proprio = nn.Linear(proprio_dims, hidden_size)
        self.queries = nn.Parameter(0.02 * torch.randn(chunk, hidden_size))
        self.head = nn.Linear(hidden_size, action_dims * bins)

    @property
    def words(self) -> nn.Embedding:
        """The word vectors."""
        return self.transformer.embed_tokens

    def forward(self, visual: Tensor, ids: Tensor, present: Tensor, proprio: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [N, H * A, B] and what the last query, which sees everything, found [N, D].

        Of visual [N, K, D], ids and present [N, L], proprio [N, P].
        """
        words = self.words(ids)
        body = self.proprio(proprio.to(words.dtype))[:, None]
        tokens = torch.cat([visual.to(words.dtype), words, body, self.queries.expand(len(ids), -1, -1)], dim=1)
        mask = torch.ones(tokens.shape[:2], dtype=torch.long, device=tokens.device)
        mask[:, visual.shape[1] : visual.shape[1] + ids.shape[1]] = present
        # positions count only what is there, so that padding changes nothing
        position = mask.cumsum(dim=1) - 1
        output = self.transformer(inputs_embeds=tokens, attention_mask=mask, position_ids=position)
        hidden = output.last_hidden_state[:, -self.chunk :]
        return self.head(hidden).view(len(ids), self.choices, self.bins), hidden[:, -1]
