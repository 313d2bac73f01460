"""PaliGemma of the pi models: images and words are embedded, and its layers run on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mmrl.policies.vla.decoder_layers import DecoderModel, self_attention_layer

KeysValues = list[tuple[Tensor, Tensor]]
"""Keys and values of every layer, each [N, L, groups, d]."""


class PaliGemmaDecoder(DecoderModel):
    """Base of models with a PaliGemma under `paligemma_with_expert.paligemma`.

    Images come before words, without tokens of the text around them. All attend to each other; padding attends to
    real tokens too, so that no row of the attention is empty.
    """

    paligemma_with_expert: Any

    @property
    def vlm(self) -> Any:
        """Return the PaliGemma of transformers without its output layer."""
        return self.paligemma_with_expert.paligemma.model

    def embed_words(self, input_ids: Tensor) -> Tensor:
        """Embed token ids [N, L] as [N, L, width]; transformers scales them by the root of the width."""
        return self.vlm.language_model.embed_tokens(input_ids)

    def embed_context(self, input_ids: Tensor, pixels: Tensor) -> Tensor:
        """Embed images [N, cameras, 3, h, w] and token ids [N, L], images first: [N, cameras * patches + L, width]."""
        features = self.vlm.vision_tower(pixel_values=pixels.flatten(0, 1)).last_hidden_state
        images = self.vlm.multi_modal_projector(features).unflatten(0, pixels.shape[:2]).flatten(1, 2)
        words = self.embed_words(input_ids)
        return torch.cat([images.to(words.dtype), words], dim=1)

    def run_vlm(
        self, hidden: Tensor, positions: Tensor, mask: Tensor, before: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Run the language model's layers on tokens [N, L, width] that follow those of `before`.

        Args:
            hidden: embedded tokens.
            positions: [N, L] of the tokens.
            mask: [N, L, K + L] True where a token attends to one of `before` or of its own.
            before: keys and values of K tokens; None for K = 0.

        Returns:
            The normalised features [N, L, width], and the keys and values of these tokens.
        """
        pairs: KeysValues = []
        for number, layer in enumerate(self.vlm.language_model.layers):
            past = (None, None) if before is None else before[number]
            hidden, *pair = self.run_layer(self_attention_layer, layer, hidden, positions, mask, *past)
            pairs.append((pair[0], pair[1]))
        return self.vlm.language_model.norm(hidden), pairs

    def read_context(self, input_ids: Tensor, words_mask: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor, KeysValues]:
        """Run the language model on images and words.

        Args:
            input_ids: [N, L].
            words_mask: [N, L] nonzero at real tokens.
            pixels: [N, cameras, 3, h, w].

        Returns:
            Features [N, K, width], mask of real tokens [N, K] bool, keys and values.
        """
        embedded = self.embed_context(input_ids, pixels)
        images = embedded.shape[1] - words_mask.shape[1]
        mask = nn.functional.pad(words_mask.bool(), (images, 0), value=True)
        pairwise = mask[:, None].expand(-1, mask.shape[1], -1)
        hidden, pairs = self.run_vlm(embedded, (mask.cumsum(dim=1) - 1).clamp(min=0), pairwise)
        return hidden, mask, pairs

    def enable_gradient_checkpointing(self) -> None:
        """Recompute layers in the backward pass instead of storing their activations."""
        self.checkpoints_layers = True
        self.vlm.vision_tower.gradient_checkpointing_enable({"use_reentrant": False})
