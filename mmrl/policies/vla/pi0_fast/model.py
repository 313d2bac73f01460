"""Modules of pi0-FAST under the names of lerobot's checkpoints, and how they are loaded and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PaliGemmaForConditionalGeneration

from mmrl.files.pretrained import build_pretrained
from mmrl.policies.vla.lerobot.files import CONFIG, REMEDY, WEIGHTS, need_file, read_config
from mmrl.policies.vla.paligemma.decoder import KeysValues, PaliGemmaDecoder
from mmrl.policies.vla.paligemma.weights import (
    EMBEDDING,
    HEAD,
    Shapes,
    network_weights,
    read_shapes,
    save_weights,
    vlm_config,
)
from mmrl.policies.weights import fill, read_weights


class Pi0Fast(PaliGemmaDecoder):
    """pi0-FAST: PaliGemma writes action tokens after images and the prompt with the state.

    Images and prompt attend to each other; the tokens after them attend to them and to the tokens before.
    Source: Pertsch et al., "FAST", 2025, section VI, arXiv:2501.09747.

    Args:
        shapes: of the checkpoint's weights.
        config: of config.json.
        attention: transformers attention implementation of the image encoder.
    """

    def __init__(self, shapes: Shapes, config: dict[str, Any], attention: str):
        super().__init__()
        self.config = config
        # lerobot 0.6 saves, and trains, word embeddings and output layer apart from each other
        self.tied = not (EMBEDDING in shapes and HEAD in shapes)
        parts: Any = nn.Module()
        sizes = vlm_config(shapes, self.tied)
        parts.paligemma = build_pretrained(PaliGemmaForConditionalGeneration, sizes, attn_implementation=attention)
        self.paligemma_with_expert = parts

    def run_tokens(
        self, ids: Tensor, context_mask: Tensor, context: KeysValues, before: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Run the language model on tokens [N, L] that follow the context and the tokens of `before`.

        Args:
            ids: of the text vocabulary.
            context_mask: [N, K] bool.
            context: keys and values of the context.
            before: keys and values of earlier tokens; None for none.

        Returns:
            Features [N, L, width], and the keys and values of all tokens after the context.
        """
        earlier = 0 if before is None else before[0][0].shape[1]
        total = earlier + ids.shape[1]
        place = torch.arange(total, device=ids.device)
        causal = place[None, earlier:, None] >= place[None, None]
        across = context_mask[:, None].expand(-1, ids.shape[1], -1)
        mask = torch.cat([across, causal.expand(len(ids), -1, -1)], dim=2)
        positions = context_mask.sum(dim=1, keepdim=True) + place[earlier:]
        past = (
            context
            if before is None
            else [(torch.cat([a, c], dim=1), torch.cat([b, d], dim=1)) for (a, b), (c, d) in zip(context, before)]
        )
        hidden, keys_values = self.run_vlm(self.embed_words(ids), positions, mask, past)
        if before is None:
            return hidden, keys_values
        return hidden, [
            (torch.cat([a, c], dim=1), torch.cat([b, d], dim=1)) for (a, b), (c, d) in zip(before, keys_values)
        ]

    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """Compute logits [..., V] of the vocabulary's `rows` [V] from features [..., width], in float32."""
        return (hidden @ self.paligemma_with_expert.paligemma.lm_head.weight[rows].T).float()


def load_model(path: str, horizon: int | None, dtype: str, attention: str) -> Pi0Fast:
    """Load a checkpoint in training mode; refuse missing weights. Arguments as of `Pi0FastPolicy`."""
    config = read_config(path, "pi0_fast", ("use_relative_actions",))
    if horizon is not None:
        config |= {"chunk_size": horizon, "n_action_steps": horizon}
    file = need_file(path, WEIGHTS)
    model = Pi0Fast(read_shapes(file), config, attention).to(getattr(torch, dtype))
    if torch.get_default_device().type != "meta":
        fill(model, network_weights(read_weights(file, REMEDY), model, model.tied), str(file))
    return model.train()


def save_model(model: Pi0Fast, folder: Path) -> None:
    """Save a model in lerobot's format."""
    save_weights(model, folder)
    (folder / CONFIG).write_text(json.dumps(model.config, indent=4) + "\n")
