"""lerobot's own ACT and Diffusion Policy with two cameras: random weights, saved and read as its training does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch


def build_original(policy_class: Any, config_class: Any, image_size: tuple[int, int], **settings: Any) -> Any:
    """Return a policy of lerobot with random weights; images are (height, width)."""
    from lerobot.configs.types import FeatureType, PolicyFeature

    shape = (3, *image_size)
    images = {f"observation.images.{n}": PolicyFeature(FeatureType.VISUAL, shape) for n in ("front", "wrist")}
    torch.manual_seed(1)
    config = config_class(
        input_features={"observation.state": PolicyFeature(FeatureType.STATE, (13,)), **images},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (3,))},
        device="cpu",
        **settings,
    )
    return policy_class(config).eval()


def save_original(
    original: Any, folder: Path, make_processors: Callable, draw: Callable[[np.random.Generator, int], dict]
) -> None:
    """Save weights, config.json and processors; `draw` gives the statistics of a vector."""
    rng = np.random.default_rng(0)
    image = {"mean": torch.tensor([0.4, 0.5, 0.6])[:, None, None], "std": torch.tensor([0.2, 0.3, 0.4])[:, None, None]}
    statistics: dict[str, Any] = {name: image for name in original.config.image_features}
    for name, size in (("observation.state", 13), ("action", 3)):
        statistics[name] = draw(rng, size)
    original.save_pretrained(folder)
    for part in make_processors(original.config, dataset_stats=statistics):
        part.save_pretrained(folder)


def load_processors(folder: Path) -> tuple[Any, Any]:
    """Load lerobot's pre- and post-processor of a folder."""
    from lerobot.processor import PolicyProcessorPipeline
    from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action

    ways = {"to_transition": policy_action_to_transition, "to_output": transition_to_policy_action}
    before = PolicyProcessorPipeline.from_pretrained(folder, "policy_preprocessor.json")
    return before, PolicyProcessorPipeline.from_pretrained(folder, "policy_postprocessor.json", **ways)
