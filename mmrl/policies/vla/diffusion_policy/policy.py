"""Diffusion Policy for cloning and RL; it loads and saves LeRobot's folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmrl.policies.base import require_inputs
from mmrl.policies.processor import Processor
from mmrl.policies.vla.action_padding import ActionPadding
from mmrl.policies.vla.chain import ChainPolicy, EncodedContext
from mmrl.policies.vla.chains.base import Prefix, check_teacher
from mmrl.policies.vla.chains.diffusion import Diffusion
from mmrl.policies.vla.diffusion_policy.encoder import ImageEncoder
from mmrl.policies.vla.diffusion_policy.settings import DiffusionSettings
from mmrl.policies.vla.diffusion_policy.unet import ConditionalUNet
from mmrl.policies.vla.lerobot.features import Features
from mmrl.policies.vla.lerobot.policy import LeRobotPolicy
from mmrl.policies.vla.value import StateValue


class DiffusionNetwork(nn.Module):
    """The two parts of Diffusion Policy: an encoder of images, and a U-Net that denoises actions."""

    def __init__(self, settings: DiffusionSettings):
        super().__init__()
        cameras = len(settings.features.images)
        separate = settings.use_separate_rgb_encoder_per_camera
        encoders = [ImageEncoder(settings) for _ in range(cameras if separate else 1)]
        self.rgb_encoder = nn.ModuleList(encoders) if separate else encoders[0]
        self.visual_features = cameras * 2 * settings.spatial_softmax_num_keypoints
        self.features = settings.n_obs_steps * (settings.features.state_dims + self.visual_features)
        self.unet = ConditionalUNet(settings, self.features)

    def look(self, pixels: Tensor) -> Tensor:
        """Compute features [N, frames, F] of pixels [N, frames, cameras, 3, H, W]."""
        encoder = self.rgb_encoder
        if isinstance(encoder, nn.ModuleList):
            parts = [part(pixels[:, :, i].flatten(0, 1)) for i, part in enumerate(encoder)]
            return torch.cat(parts, dim=-1).unflatten(0, pixels.shape[:2])
        return encoder(pixels.flatten(0, 2)).unflatten(0, pixels.shape[:3]).flatten(2)


class DiffusionPolicy(LeRobotPolicy, ChainPolicy):
    """Diffusion Policy: a U-Net over control steps denoises the chunk, given points of the images and the state.

    The network denoises `horizon` control steps, from that of the earliest observation on; the chunk begins at the
    present one. Steps outside the chunk follow the chain's deterministic transitions, and nothing is trained on them,
    so a new policy is best given a chunk of horizon - n_obs_steps + 1. Without `path` the weights are random.

    Source: Chi et al., "Diffusion Policy", 2023, arXiv:2303.04137; weights, config.json and processors as lerobot 0.4
    and 0.6 save them. Differs: crops are taken from the centre in training too; BatchNorm keeps its running statistics;
    the loss is that of the chunk.

    Args:
        chain: DDIM or DDPM; its levels are those of the checkpoint.
        path: folder or hub id of a checkpoint; None for a new policy.
        settings: entries of config.json of a new policy that differ from lerobot's defaults. Without `horizon` it is
            the smallest that holds the chunk.
        teacher: sampler of a frozen copy whose chunks are the distillation targets; None for `chain`.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision.
        proprio_dims: length of the proprioception vector.
        cameras: observations that are images, in the order in which the network reads them.
        image_size: height and width of the images of a new policy, or one number for both.
        timesteps_per_sample: noise levels drawn for each demonstrated row, in one pass.
        freeze_vision: the image encoder stays fixed; rows then store its features instead of images.
        value_head: predict the return of the state, per row, from the features of the observations.
        critic: whether that gradient trains the encoder too ("shared") or not ("detached").
        processor: between the simulator or dataset and the network; None for what the checkpoint says.
    """

    optional = ("value_head",)
    settings_class = DiffusionSettings
    chain: Diffusion
    teacher: Diffusion | None

    def __init__(
        self,
        chain: Diffusion,
        path: str | None = None,
        settings: Mapping[str, Any] | None = None,
        teacher: Diffusion | None = None,
        action_dims: int = 3,
        chunk: int = 8,
        proprio_dims: int = 13,
        cameras: Sequence[str] = ("image",),
        image_size: int | Sequence[int] = 64,
        timesteps_per_sample: int = 1,
        freeze_vision: bool = False,
        value_head: bool = False,
        critic: Literal["shared", "detached"] = "detached",
        processor: Processor | None = None,
    ):
        super().__init__()
        if chain.prediction_type != "epsilon":
            raise ValueError(
                f"policy.chain {type(chain).__name__} needs a network that predicts the {chain.prediction_type}, "
                "but this policy predicts the noise: take DDIM or DDPM"
            )
        check_teacher(chain, teacher)
        self.chain, self.teacher, self.critic = chain, teacher, critic
        self.timesteps_per_sample = timesteps_per_sample
        features = Features.of(cameras, image_size, proprio_dims, action_dims)
        new = DiffusionSettings.cover(chunk, {"num_train_timesteps": chain.levels, **(settings or {})})
        self._configure(path, new, features, cameras, chunk, processor)
        self._check_chain(path)
        # x_0 and so the actions are bounded where the chain bounds them
        self.bound = chain.bound
        self.action_padding = self._padding()
        self.diffusion = DiffusionNetwork(self.settings)
        width = self.diffusion.features
        self.value_head = StateValue(width, min(width, 512)) if value_head else None
        self._load()
        self.freeze_vision = freeze_vision
        self.cached_inputs = frozenset({"images"}) if freeze_vision else frozenset()
        if freeze_vision:
            self.diffusion.rgb_encoder.requires_grad_(False)

    def _check_chain(self, path: str | None) -> None:
        levels = self.settings.num_train_timesteps
        for name, chain in (("chain", self.chain), ("teacher", self.teacher)):
            if chain is not None and chain.levels != levels:
                raise ValueError(
                    f"policy.{name} has {chain.levels} noise levels, but the network of policy.path={path} was trained "
                    f"with num_train_timesteps={levels}: set policy.{name}.levels={levels} (DDPM: steps={levels})"
                )

    def _padding(self) -> ActionPadding | None:
        """Return the padding between the chunk and the network's horizon; None if they are equal."""
        start, horizon = self.frames - 1, self.settings.horizon
        if not 1 <= self.chunk <= horizon - start:
            raise ValueError(
                f"policy.chunk={self.chunk}, but the network denoises {horizon} control steps, of which the first "
                f"{start} are past: at most {horizon - start}"
            )
        padding = ActionPadding(self.chunk, self.action_dims, horizon, self.action_dims, start)
        return padding if padding.entries_per_step else None

    @torch.no_grad()
    def cache_features(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        return {"visual": self._look(observation)} if self.freeze_vision else {}

    def _look(self, observation: Mapping[str, Any]) -> Tensor:
        """Compute features [N, frames, F] of the images; stored features are returned instead."""
        if "visual" in observation:
            return observation["visual"]
        require_inputs(observation, ("images",), self)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_vision):
            return self.diffusion.look(self.pixels(observation["images"]))

    def encode_context(self, observation: Mapping[str, Any]) -> EncodedContext:
        visual = self._look(observation)
        features = torch.cat([observation["proprio"].to(visual.dtype), visual], dim=-1).flatten(1)
        cached = {"visual": visual} if self.freeze_vision else {}
        if self.value_head is None:
            return EncodedContext((features,), cached_features=cached)
        critic_input = features if self.critic == "shared" else features.detach()
        return EncodedContext((features,), self.value_head(critic_input), cached_features=cached)

    def predict(
        self, prefix: Prefix, x: Tensor, time: Tensor, end_time: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        level = (time * self.chain.levels).round() - 1  # lerobot counts the levels of noise from 0
        return self.diffusion.unet(x, level, prefix[0]).float(), None

    def _save_changes(self) -> dict[str, Any]:
        """Return the entries of config.json that depend on the chunk and the chain."""
        bound = self.chain.bound
        return {
            **super()._save_changes(),
            "noise_scheduler_type": type(self.chain).__name__,
            "num_inference_steps": self.chain.steps,
            "clip_sample": bound is not None,
            "clip_sample_range": 1.0 if bound is None else bound,
        }
