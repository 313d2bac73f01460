"""Buffer of the last camera images of every environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium import spaces

from sims.render import Look, Renderer
from sims.render.base import FAR_M, PIXELS, Kind, blank
from sims.tabletop.worlds import TabletopPhysics

_CAMERA = "front"
_NAMES = {"rgb": "image"}  # what observations call a kind; the others keep their names
_BOUNDS = {"rgb": (0, 255), "depth": (0.0, FAR_M), "segmentation": (-1, 2**31 - 1)}


class CameraImages:
    """Images of n environments, a row each, of some kinds; of no kinds, nothing is ever drawn.

    Args:
        kinds: "rgb" (called "image" in observations), "depth", "segmentation".
        count: of environments.
        size: pixels a side.
    """

    def __init__(self, kinds: Sequence[Kind], count: int, size: int):
        self.kinds, self.size = tuple(kinds), size
        self._shown = blank(kinds, count, size)

    def spaces(self) -> dict[str, spaces.Box]:
        """What one environment's images are, by name in the observation."""
        shape = (self.size, self.size)
        return {
            _NAMES.get(kind, kind): spaces.Box(*_BOUNDS[kind], (*shape, *PIXELS[kind][1]), PIXELS[kind][0])
            for kind in self.kinds
        }

    def draw(self, renderer: Renderer, physics: TabletopPhysics, ids: np.ndarray, looks: Sequence[Look | None]) -> None:
        """Look at some environments anew; looks has an entry for every environment."""
        if self.kinds and ids.size:
            dressed = [looks[i] for i in ids]
            views = renderer.views(physics.kinematics.batch, ids, _CAMERA, self.size, self.kinds, dressed)
            for kind, images in views.items():
                self._shown[kind][ids] = images

    def copy_rows(self, ids: np.ndarray, source: np.ndarray) -> None:
        """Give environments `ids` the images of environments `source`."""
        for images in self._shown.values():
            images[ids] = images[source]

    def observation(self) -> dict[str, np.ndarray]:
        """Copies by name: rows of an observation are kept in episodes while the environments go on."""
        return {_NAMES.get(kind, kind): images.copy() for kind, images in self._shown.items()}

    def state_dict(self) -> dict[str, np.ndarray]:
        return {f"image_{kind}": images.copy() for kind, images in self._shown.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self._shown = {kind: state[f"image_{kind}"].copy() for kind in self.kinds}
