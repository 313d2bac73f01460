"""CLIP reward: similarity of an image and a goal sentence (VLM-RM)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.errors import check_fraction
from mmrl.files.pretrained import load_pretrained, load_whole
from mmrl.rewards.models.frames import FrameReward


class GoalBaselineSimilarity(FrameReward):
    """1 - |M (s - g)|^2 / 2 with M = alpha d d' / |d|^2 + (1 - alpha) I and d = g - b.

    s, g and b are unit embeddings of the image, of the goal sentence and of a baseline sentence that describes the
    scene without its goal. alpha = 0 is the cosine of image and goal; alpha = 1 sees only the direction from
    baseline to goal and nothing else in the image.
    Source: Rocamonde et al., "Vision-Language Models are Zero-Shot Reward Models", arXiv 2310.12921, equation 3.

    Args:
        path: hub id or folder of a CLIP-type model and its processor, read at the first call.
        baseline: sentence about the scene without its goal.
        goal: sentence about the reached goal; "{instruction}" stands for the episode's instruction.
        alpha: share of the projection, in [0, 1].
        device: where the encoders run; None takes a GPU where there is one.
        batch_size: images per forward pass.
    """

    def __init__(
        self,
        path: str,
        baseline: str,
        goal: str = "{instruction}",
        alpha: float = 0.5,
        device: str | None = None,
        batch_size: int = 64,
    ):
        check_fraction("reward", alpha=alpha)
        self.path, self.baseline, self.goal, self.alpha, self.batch_size = path, baseline, goal, alpha, batch_size
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._sentences: dict[str, Tensor] = {}

    def __call__(self, before: np.ndarray, after: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        goals = torch.stack([self._sentence(self.goal.replace("{instruction}", text)) for text in instructions])
        images = torch.cat(
            [self._embed_images(after[i : i + self.batch_size]) for i in range(0, len(after), self.batch_size)]
        )
        return goal_baseline_reward(images, goals, self._sentence(self.baseline), self.alpha).cpu().numpy()

    @cached_property
    def _encoders(self) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoProcessor

        model = load_whole(AutoModel, self.path).to(self.device).eval().requires_grad_(False)
        if not (hasattr(model, "get_image_features") and hasattr(model, "get_text_features")):
            raise ValueError(f"{self.path} is a {type(model).__name__}, which has no pair of encoders as CLIP has")
        return model, load_pretrained(AutoProcessor, self.path)

    @torch.no_grad()
    def _sentence(self, text: str) -> Tensor:
        if text not in self._sentences:
            model, processor = self._encoders
            inputs = processor(text=[text], return_tensors="pt", padding=True, truncation=True).to(self.device)
            self._sentences[text] = _unit(model.get_text_features(**inputs))[0]
        return self._sentences[text]

    @torch.no_grad()
    def _embed_images(self, frames: np.ndarray) -> Tensor:
        model, processor = self._encoders
        inputs = processor(images=list(frames), return_tensors="pt").to(self.device)
        return _unit(model.get_image_features(**inputs))


def goal_baseline_reward(image: Tensor, goal: Tensor, baseline: Tensor, alpha: float) -> Tensor:
    """[...] of unit embeddings image [..., D], goal [..., D] and baseline [D]; see `GoalBaselineSimilarity`."""
    direction = goal - baseline
    length = direction.square().sum(dim=-1, keepdim=True)
    if (length == 0).any():
        raise ValueError("the goal and the baseline have the same embedding: no direction leads from one to the other")
    apart = image - goal
    along = direction * (apart * direction).sum(dim=-1, keepdim=True) / length
    return 1 - 0.5 * (alpha * along + (1 - alpha) * apart).square().sum(dim=-1)


def _unit(output: Any) -> Tensor:
    features = getattr(output, "pooler_output", output)  # a tensor in older releases of transformers
    return torch.nn.functional.normalize(features.float(), dim=-1)
