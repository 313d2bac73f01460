"""Modules of OpenVLA under the names of its published checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from transformers import LlamaForCausalLM

from mmrl.files.pretrained import build_pretrained
from mmrl.policies.vla.openvla.settings import OpenVLASettings


class VisionBackbone(nn.Module):
    """One or two vision transformers of timm; their patch features are joined feature by feature.

    Features are those of the last block but one, without the final norm and without class and register tokens.
    """

    def __init__(self, settings: OpenVLASettings):
        super().__init__()
        self.featurizer: Any = _create_encoder(settings.encoder_arguments(0))
        self.fused_featurizer: Any = None
        if settings.use_fused_vision_backbone:
            self.fused_featurizer = _create_encoder(settings.encoder_arguments(1))

    @property
    def encoders(self) -> Sequence[Any]:
        return [part for part in (self.featurizer, self.fused_featurizer) if part is not None]

    @property
    def width(self) -> int:
        return sum(encoder.embed_dim for encoder in self.encoders)

    @property
    def unused(self) -> Sequence[nn.Module]:
        """Return modules whose weights are stored but not read: the last block and what comes after it."""
        after = ("norm", "fc_norm", "attn_pool")
        parts = [getattr(encoder, name, None) for encoder in self.encoders for name in after]
        return [part for part in parts if part is not None] + [encoder.blocks[-1] for encoder in self.encoders]

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute patch features [N, P, width] of images [N, 3 per encoder, h, w]."""
        images = pixels.split(3, dim=1)
        return torch.cat([_patch_features(part, image) for part, image in zip(self.encoders, images)], dim=2)


class Projector(nn.Module):
    """Perceptron from patch features to the language model's embeddings; three layers for two encoders, else two."""

    def __init__(self, settings: OpenVLASettings, vision_width: int, width: int):
        super().__init__()
        inner = 4 * vision_width if settings.use_fused_vision_backbone else width
        self.fc1 = nn.Linear(vision_width, inner)
        self.fc2 = nn.Linear(inner, width)
        self.fc3 = nn.Linear(width, width) if settings.use_fused_vision_backbone else None

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.fc2(gelu(self.fc1(features)))
        return hidden if self.fc3 is None else self.fc3(gelu(hidden))


class OpenVLA(nn.Module):
    """OpenVLA: patches of the images and the words of a prompt, read by a Llama that writes action tokens.

    Source: Kim et al., "OpenVLA", 2024, section 3.1, arXiv:2406.09246; Karamcheti et al., "Prismatic VLMs", 2024,
    arXiv:2402.07865.

    Args:
        settings: of the checkpoint.
        attention: transformers attention implementation of the language model.
    """

    def __init__(self, settings: OpenVLASettings, attention: str = "sdpa"):
        super().__init__()
        self.settings = settings
        self.vision_backbone = VisionBackbone(settings)
        width = settings.text_config.hidden_size
        self.projector = Projector(settings, self.vision_backbone.width, width)
        self.language_model: Any = build_pretrained(
            LlamaForCausalLM, settings.text_config, attn_implementation=attention
        )

    def embed_images(self, pixels: Tensor) -> Tensor:
        """Embed images [N, cameras, channels, h, w]: [N, cameras * patches, width]."""
        features = self.projector(self.vision_backbone(pixels.flatten(0, 1)))
        return features.unflatten(0, pixels.shape[:2]).flatten(1, 2)

    def embed_context(self, input_ids: Tensor, images: Tensor) -> Tensor:
        """Insert embedded images [N, P, width] after the first of the tokens [N, L]: [N, P + L, width]."""
        words = self.language_model.model.embed_tokens(input_ids)
        return torch.cat([words[:, :1], images.to(words.dtype), words[:, 1:]], dim=1)

    def action_logits(self, hidden: Tensor) -> Tensor:
        """Compute logits [..., B] of the action tokens from features [..., width]; bin b is token end - 1 - b."""
        end, bins = self.settings.action_token_end, self.settings.n_action_bins
        return self.language_model.lm_head(hidden)[..., end - bins : end].flip(-1)

    def action_tokens(self, chosen: Tensor) -> Tensor:
        """Return the token ids of bins."""
        return self.settings.action_token_end - 1 - chosen


def _create_encoder(arguments: dict[str, Any]) -> Any:
    encoder = timm.create_model(**arguments)
    encoder.blocks = nn.ModuleList(encoder.blocks)  # a list of blocks is sharded block by block
    return encoder


def _patch_features(encoder: Any, image: Tensor) -> Tensor:
    """Compute features [N, P, width] of the last block but one."""
    indices = [len(encoder.blocks) - 2]
    options = {"norm": False, "stop_early": True, "output_fmt": "NLC", "intermediates_only": True}
    return encoder.forward_intermediates(image, indices=indices, **options)[0]
