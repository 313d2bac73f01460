"""The network of ACT: a conditional variational autoencoder of action chunks."""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.ops.misc import FrozenBatchNorm2d

from mmrl.policies.vla.act.layers import Decoder, Encoder, sine_embedding_1d, sine_embedding_2d
from mmrl.policies.vla.act.settings import ACTSettings
from mmrl.policies.vla.lerobot.resnet import feature_size


class ACT(nn.Module):
    """Action Chunking Transformer: action queries attend to tokens of the images, the state and a latent.

    In training an encoder of state and demonstrated actions gives the latent's distribution; in acting the latent is 0.
    Source: Zhao et al., "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware", 2023, section IV and
    appendix C, arXiv:2304.13705.

    Args:
        settings: of the checkpoint.
    """

    vae_encoder_pos_enc: Tensor
    image_position_embedding: Tensor

    def __init__(self, settings: ACTSettings):
        super().__init__()
        self.settings = settings
        width, state, actions = settings.dim_model, settings.features.state_dims, settings.features.action_dims
        # encoder of the latent, which training alone uses: [class, state, actions]
        if settings.use_vae:
            self.vae_encoder = Encoder(settings, settings.n_vae_encoder_layers)
            self.vae_encoder_cls_embed = nn.Embedding(1, width)
            self.vae_encoder_robot_state_input_proj = nn.Linear(state, width)
            self.vae_encoder_action_input_proj = nn.Linear(actions, width)
            self.vae_encoder_latent_output_proj = nn.Linear(width, 2 * settings.latent_dim)
            self.register_buffer("vae_encoder_pos_enc", sine_embedding_1d(settings.chunk_size + 2, width)[None])
        # last feature map [N, C, h, w] of each image
        net: Any = torchvision.models.get_model(
            settings.vision_backbone,
            weights=None,
            replace_stride_with_dilation=[False, False, settings.replace_final_stride_with_dilation],
            norm_layer=FrozenBatchNorm2d,
        )
        self.backbone = IntermediateLayerGetter(net, return_layers={"layer4": "map"})
        # tokens of latent, state and images, which one query per control step reads
        self.encoder = Encoder(settings, settings.n_encoder_layers)
        self.decoder = Decoder(settings)
        self.encoder_robot_state_input_proj = nn.Linear(state, width)
        self.encoder_latent_input_proj = nn.Linear(settings.latent_dim, width)
        self.encoder_img_feat_input_proj = nn.Conv2d(net.fc.in_features, width, kernel_size=1)
        self.encoder_1d_feature_pos_embed = nn.Embedding(2, width)
        size = feature_size(settings.features.image_size, 4 if settings.replace_final_stride_with_dilation else 5)
        positions = sine_embedding_2d(*size, width).repeat(len(settings.features.images), 1)
        self.register_buffer("image_position_embedding", positions, persistent=False)
        self.decoder_pos_embed = nn.Embedding(settings.chunk_size, width)
        self.action_head = nn.Linear(width, actions)
        for weight in (*self.encoder.parameters(), *self.decoder.parameters()):
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)

    def read(self, pixels: Tensor, state: Tensor) -> Tensor:
        """Compute the tokens [N, 1 + L, D] of state and images.

        Args:
            pixels: [N, cameras, 3, H, W], normalised.
            state: [N, P].
        """
        maps = self.encoder_img_feat_input_proj(self.backbone(pixels.flatten(0, 1))["map"])
        images = maps.flatten(2).transpose(1, 2).unflatten(0, pixels.shape[:2]).flatten(1, 2)
        return torch.cat([self.encoder_robot_state_input_proj(state)[:, None], images], dim=1)

    def decode(self, tokens: Tensor, latent: Tensor | None = None) -> Tensor:
        """Compute features [N, S, D] of the action queries; without a latent [N, Z] it is 0.

        Args:
            tokens: of `read`.
            latent: of the demonstrated actions.
        """
        latent = tokens.new_zeros(len(tokens), self.settings.latent_dim) if latent is None else latent
        x = torch.cat([self.encoder_latent_input_proj(latent)[:, None], tokens], dim=1)
        token_positions = torch.cat([self.encoder_1d_feature_pos_embed.weight, self.image_position_embedding])
        queries = self.decoder_pos_embed.weight
        start = queries.new_zeros(len(tokens), *queries.shape)
        return self.decoder(start, self.encoder(x, token_positions), queries, token_positions)

    def posterior(self, state: Tensor, actions: Tensor, padded: Tensor) -> tuple[Tensor, Tensor]:
        """Compute mean and log-variance [N, Z] of the latent of demonstrated actions [N, S, A].

        `padded` [N, S] marks control steps that do not belong to the demonstration.
        """
        cls = self.vae_encoder_cls_embed.weight.expand(len(actions), 1, -1)
        state_token = self.vae_encoder_robot_state_input_proj(state)[:, None]
        x = torch.cat([cls, state_token, self.vae_encoder_action_input_proj(actions)], dim=1)
        ignored = torch.cat([padded.new_zeros(len(actions), 2), padded], dim=1)
        out = self.vae_encoder(x, self.vae_encoder_pos_enc, ignored)[:, 0]
        mean, log_variance = self.vae_encoder_latent_output_proj(out).chunk(2, dim=1)
        return mean, log_variance
