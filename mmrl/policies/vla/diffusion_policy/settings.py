"""Settings of a Diffusion Policy checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.policies.vla.lerobot.settings import LeRobotSettings


@dataclass(frozen=True, kw_only=True)
class DiffusionSettings(LeRobotSettings):
    """Entries of config.json that the network depends on, with the defaults of lerobot 0.4.

    Args:
        n_obs_steps: observations that the policy reads: the present one and earlier ones.
        horizon: S, control steps that the network denoises, from that of the earliest observation on.
        n_action_steps: of these, how many lerobot executes.
        vision_backbone: torchvision's name of a ResNet.
        resize_shape: (height, width) to which images are resized; null does not resize.
        crop_ratio: with resize_shape, size of the crop as a fraction.
        crop_shape: (height, width) of the crop; null does not crop.
        use_group_norm: GroupNorm in place of BatchNorm.
        spatial_softmax_num_keypoints: points of an image that the policy reads.
        use_separate_rgb_encoder_per_camera: one encoder per camera, or one for all.
        down_dims: channels of each level of the U-Net; each level but the last halves the number of control steps.
        kernel_size: of the convolutions over control steps.
        n_groups: of the GroupNorm of the U-Net.
        diffusion_step_embed_dim: width of the embedding of the noise level.
        use_film_scale_modulation: FiLM scales channels and shifts them, or shifts them only.
        num_train_timesteps: L, noise levels.
        beta_schedule: mmrl has squaredcos_cap_v2, the cosine schedule.
        prediction_type: mmrl has epsilon.
    """

    kind: ClassVar[str] = "diffusion"

    n_obs_steps: int = 2
    horizon: int = 16
    n_action_steps: int = 8
    vision_backbone: str = "resnet18"
    resize_shape: tuple[int, int] | None = None
    crop_ratio: float = 1.0
    crop_shape: tuple[int, int] | None = None
    use_group_norm: bool = True
    spatial_softmax_num_keypoints: int = 32
    use_separate_rgb_encoder_per_camera: bool = False
    down_dims: tuple[int, ...] = (512, 1024, 2048)
    kernel_size: int = 5
    n_groups: int = 8
    diffusion_step_embed_dim: int = 128
    use_film_scale_modulation: bool = True
    num_train_timesteps: int = 100
    beta_schedule: str = "squaredcos_cap_v2"
    prediction_type: str = "epsilon"

    def __post_init__(self) -> None:
        for name, value in (("beta_schedule", "squaredcos_cap_v2"), ("prediction_type", "epsilon")):
            if getattr(self, name) != value:
                raise ValueError(
                    f"diffusion policy: {name} is {getattr(self, name)!r}, but mmrl computes {value!r} only; take a "
                    "checkpoint that was trained with it"
                )
        factor = 2 ** len(self.down_dims)
        if self.horizon % factor:
            raise ValueError(
                f"policy.settings.horizon={self.horizon} must be a multiple of {factor}, 2 ** the number of down_dims "
                f"{list(self.down_dims)}"
            )

    @classmethod
    def cover(cls, chunk: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings of a new policy, with the smallest horizon that holds the chunk unless one is given."""
        factor = 2 ** len(given.get("down_dims", cls.down_dims))
        needed = chunk + given.get("n_obs_steps", cls.n_obs_steps) - 1
        return {"horizon": -(-needed // factor) * factor, **given}

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images that the encoder reads."""
        return self.crop or self.resize_shape or self.features.image_size

    @property
    def crop(self) -> tuple[int, int] | None:
        """Height and width of the crop; None without one."""
        if self.resize_shape is None:
            return self.crop_shape
        if self.crop_ratio >= 1:
            return None
        return int(self.resize_shape[0] * self.crop_ratio), int(self.resize_shape[1] * self.crop_ratio)
