"""Base class of policies in LeRobot's layout that read images and a state: inputs, loading and saving."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from mmrl.core.types import Observation
from mmrl.files.strict_json import read_json_object
from mmrl.policies.base import Policy, require_inputs
from mmrl.policies.processor import Processor, check_chunk
from mmrl.policies.text.loading import checkpoint_error
from mmrl.policies.vla.lerobot.features import Features
from mmrl.policies.vla.lerobot.files import WEIGHTS, find_file, need_file
from mmrl.policies.vla.lerobot.settings import LeRobotSettings
from mmrl.policies.vla.lerobot.statistics import DEVICE, NORMALIZER, ProcessorStep, read_scales, write_scales
from mmrl.policies.vla.pretrained.loading import EXTRA, OWN
from mmrl.policies.vla.scale import Scale
from mmrl.policies.weights import fill, read_weights

INPUTS = (ProcessorStep("rename_observations_processor", {"rename_map": {}}), ProcessorStep("to_batch_processor"))
"""First steps of the pre-processor."""
IMAGENET = Scale("mean_std", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Statistics of images in [0, 1] that LeRobot trains new policies with."""


class LeRobotPolicy(Policy):
    """Policy in LeRobot's layout: config.json, model.safetensors, processors and statistics.

    Names of the modules beside `optional` are those of LeRobot's weights. Subclasses call `_configure` first and
    `_load` last.
    """

    scales_images = True
    settings_class: ClassVar[type[LeRobotSettings]]
    settings: Any
    chunk: int
    action_dims: int
    processor: Processor
    image_offset: Tensor
    image_width: Tensor

    def _configure(
        self,
        path: str | None,
        settings: Mapping[str, Any],
        features: Features,
        cameras: Sequence[str],
        chunk: int,
        processor: Processor | None,
    ) -> None:
        """Set settings, units and sizes: those of the checkpoint, or without `path` those that are given."""
        self.path, self.cameras, self.chunk = path, tuple(cameras), chunk
        self.proprio_dims, self.action_dims = features.state_dims, features.action_dims
        if path is None:
            self.settings = self.settings_class.of(features, settings)
            images = [IMAGENET] * len(self.cameras)
            self.processor = processor or Processor()
        else:
            with checkpoint_error(path):
                self.settings = self.settings_class.read(path)
                names = self.settings.features.images
                scales = read_scales(path, self.settings.raw, find_file(path, WEIGHTS), "MEAN_STD", names)
            self.settings.features.check(cameras, self.proprio_dims, self.action_dims, f"policy.path={path}")
            images = [scales[name] for name in names]
            self.processor = _resolve_processor(path, scales, processor)
        self.image_scales = images
        for name, empty in (("offset", 0.0), ("width", 1.0)):
            rows = [getattr(scale, name) or (empty,) * 3 for scale in images]
            self.register_buffer(f"image_{name}", torch.tensor(rows)[..., None, None], persistent=False)

    def _load(self) -> None:
        """Load the weights of the checkpoint."""
        if self.path is None:
            return
        file, remedy = need_file(self.path, WEIGHTS), "save the policy there again"
        weights = {name.replace("._orig_mod.", "."): part for name, part in read_weights(file, remedy).items()}
        weights = {name: part for name, part in weights.items() if not name.startswith(("normalize_", "unnormalize_"))}
        heads = find_file(self.path, EXTRA)
        fill(self, weights | ({} if heads is None else read_weights(heads, remedy)), str(file), self.optional)

    # ---------------------------------------------------------------- inputs

    @property
    def frames(self) -> int:
        """Observations that the policy reads: the present one and earlier ones."""
        return self.settings.n_obs_steps

    def observation_names(self) -> tuple[str, ...]:
        return self.processor.names_before((*self.cameras, "proprio"))

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """Convert {camera uint8 [H, W, 3], "proprio" [P]} to images [frames, cameras, H, W, 3] and proprio [frames, P].

        With more than one frame every entry has a first axis of frames, the oldest first.
        """
        steps = [self._encode_frame(frame) for frame in self._split(raw)]
        return {name: torch.stack([step[name] for step in steps]) for name in ("images", "proprio")}

    def _split(self, raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Split a raw observation with a history into its frames."""
        if self.frames == 1:
            return [raw]
        names = [name for name in self.observation_names() if name in raw]
        for name in names:
            shape = np.shape(raw[name])
            if len(shape) != (2 if name == self.processor.names_before(("proprio",))[0] else 4) or (
                shape[0] != self.frames
            ):
                raise ValueError(
                    f"observation {name!r} has shape {shape}, but the policy reads {self.frames} observations "
                    f"(n_obs_steps): play with sim=chunked sim.history={self.frames} (recorded episodes: "
                    f"rollout=history rollout.history={self.frames}), or train a new policy with "
                    "policy.settings.n_obs_steps=1"
                )
        return [{**raw, **{name: raw[name][i] for name in names}} for i in range(self.frames)]

    def _encode_frame(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        raw = self.processor.encode(raw)
        require_inputs(raw, (*self.cameras, "proprio"), self)
        images = [torch.as_tensor(np.asarray(raw[name])) for name in self.cameras]
        expected = (*self.settings.features.image_size, 3)
        for name, image in zip(self.cameras, images):
            if image.dtype != torch.uint8 or tuple(image.shape) != expected:
                raise ValueError(
                    f"observation {name!r} is {image.dtype} {tuple(image.shape)}, but the policy reads uint8 "
                    f"{expected}; set policy.processor.images.{name}.size, or policy.image_size of a new policy"
                )
        proprio = torch.as_tensor(np.asarray(raw["proprio"], dtype=np.float32))
        if proprio.shape != (self.proprio_dims,):
            raise ValueError(
                f"observation 'proprio' has shape {tuple(proprio.shape)}, but policy.proprio_dims is "
                f"{self.proprio_dims}"
            )
        return {"images": torch.stack(images), "proprio": proprio}

    def pixels(self, images: Tensor) -> Tensor:
        """Normalise uint8 images [N, frames, cameras, H, W, 3] to float32 [N, frames, cameras, 3, H, W]."""
        return (images.movedim(-1, -3).float() / 255 - self.image_offset) / self.image_width

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Return the chunk [H, A] in the policy's units."""
        real = check_chunk(output, self.chunk, self.action_dims)
        return torch.as_tensor(self.processor.encode_action(real))

    def contract(self) -> dict[str, Any]:
        """Return the processor, the cameras, and the shape of an action."""
        sizes = {"action.chunk": self.chunk, "action.dims": self.action_dims, "observation.frames": self.frames}
        return {**self.processor.contract(), "cameras": list(self.cameras), **sizes}

    # ---------------------------------------------------------------- export

    def _save_changes(self) -> dict[str, Any]:
        """Return the entries of config.json that depend on how the policy is used here."""
        return {"n_action_steps": self.chunk}

    def save_pretrained(self, folder: str | Path) -> None:
        """Save config.json, weights, processors and statistics for LeRobot, and mmrl's heads and policy.processor."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.settings.save(folder, self._save_changes())
        state = self.processor.vectors.get("proprio", Scale())
        images = dict(zip(self.settings.features.images, self.image_scales))
        device = {"device": self.settings.raw.get("device") or "cpu", "float_dtype": None}
        steps = [*INPUTS, ProcessorStep(DEVICE, device), ProcessorStep(NORMALIZER)]
        write_scales(folder, steps, {"STATE": state, "ACTION": self.processor.action, **images})
        weights = {name: value.detach().contiguous().cpu() for name, value in self.state_dict().items()}
        heads = {name: value for name, value in weights.items() if name.startswith(self.optional)}
        plain = {name: value for name, value in weights.items() if name not in heads}
        save_file(plain, folder / WEIGHTS, metadata={"format": "pt"})
        if heads:
            save_file(heads, folder / EXTRA)
        metadata = {"class": type(self).__name__, "processor": self.processor.to_dict()}
        (folder / OWN).write_text(json.dumps(metadata, indent=2) + "\n")


def _resolve_processor(path: str, scales: Mapping[str, Scale], given: Processor | None) -> Processor:
    """Return mmrl's processor of a folder that mmrl saved; else the given one with the scales of the statistics."""
    file, where = find_file(path, OWN), f"policy.path={path}"
    if file is not None:
        saved = read_json_object(file, "save the policy there again").get("processor")
        return Processor.resolve(given, saved, where)
    state = scales["STATE"]
    vectors = {} if state.kind == "identity" else {"proprio": state}
    return Processor.with_statistics(given, Processor(vectors=vectors, action=scales["ACTION"]), where)
