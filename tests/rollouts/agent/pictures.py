"""Questions about images, for agents of vision-language policies."""

from __future__ import annotations

import numpy as np

from mmrl.core.types import Prompt
from tests.rollouts.agent.policies import Questions


class Pictures(Questions):
    """Questions about an image each, and every fourth about none."""

    def __getitem__(self, index: int) -> Prompt:
        size = (28 * (1 + index % 2), 28 * (1 + index % 3), 3)
        pixels = np.random.default_rng(index).integers(0, 256, size, dtype=np.uint8)
        shown = (pixels,) if index % 4 else ()
        content = [*({"type": "image"} for _ in shown), {"type": "text", "text": "which?"}]
        return Prompt(f"pictures/train/{index}", ({"role": "user", "content": content},), shown, info={"number": index})
