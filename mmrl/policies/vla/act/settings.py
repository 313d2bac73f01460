"""Settings of an ACT checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmrl.policies.vla.lerobot.settings import LeRobotSettings


@dataclass(frozen=True, kw_only=True)
class ACTSettings(LeRobotSettings):
    """Entries of config.json that the network depends on, with LeRobot's defaults.

    Args:
        n_obs_steps: observations that the policy reads: 1.
        chunk_size: S, control steps that the network predicts.
        vision_backbone: torchvision's name of a ResNet.
        replace_final_stride_with_dilation: the last stage keeps the size of its feature map.
        pre_norm: LayerNorm before attention and MLP, or after.
        dim_model: D, width of the transformers.
        n_heads: attention heads.
        dim_feedforward: width of the MLPs.
        feedforward_activation: relu or gelu.
        n_encoder_layers: of the transformer that reads images and state.
        n_decoder_layers: of the transformer that predicts actions.
        use_vae: train with a latent that an encoder of the demonstrated actions gives.
        latent_dim: length of the latent.
        n_vae_encoder_layers: of that encoder.
    """

    kind: ClassVar[str] = "act"

    n_obs_steps: int = 1
    chunk_size: int = 100
    vision_backbone: str = "resnet18"
    replace_final_stride_with_dilation: bool = False
    pre_norm: bool = False
    dim_model: int = 512
    n_heads: int = 8
    dim_feedforward: int = 3200
    feedforward_activation: str = "relu"
    n_encoder_layers: int = 4
    n_decoder_layers: int = 1
    use_vae: bool = True
    latent_dim: int = 32
    n_vae_encoder_layers: int = 4

    def __post_init__(self) -> None:
        if self.n_obs_steps != 1:
            raise ValueError(f"policy.settings.n_obs_steps={self.n_obs_steps}: ACT reads one observation")
        if self.feedforward_activation not in ("relu", "gelu"):
            raise ValueError(
                f"act: feedforward_activation={self.feedforward_activation!r}, but mmrl computes relu and gelu"
            )
