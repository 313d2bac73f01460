"""Common interface of the renderers of a batch of environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from mujoco import MjModel
from mujoco.batch import Batch

from sims.render.camera import Camera
from sims.render.looks import Look
from sims.render.probe import probe

Backend = Literal["auto", "ray", "egl", "osmesa"]


Kind = Literal["rgb", "depth", "segmentation"]
PIXELS: dict[str, tuple[type, tuple[int, ...]]] = {
    "rgb": (np.uint8, (3,)),
    "depth": (np.float32, ()),  # metres along the camera's axis, at most FAR_M
    "segmentation": (np.int32, ()),  # geom ids, -1 for the sky
}
"""What a pixel of each kind of image is: its type and its shape."""

FAR_M = 10.0
"""What lies farther, the sky too, has this depth, metres."""


class Renderer(ABC):
    """Renders environments of one model. `name` is recorded with everything made from its images."""

    name: str

    @abstractmethod
    def views(
        self,
        batch: Batch,
        ids: np.ndarray,
        camera: str,
        size: int,
        kinds: Sequence[Kind] = ("rgb",),
        looks: Sequence[Look | None] | None = None,
    ) -> dict[str, np.ndarray]:
        """Render the camera's view of some environments, by kind of image: [len(ids), size, size, ...] of `PIXELS`.

        Args:
            batch: of the renderer's model.
            ids: of the environments.
            camera: its name.
            size: pixels a side.
            kinds: of images; they show the same instant, pixel for pixel.
            looks: how each of those environments looks; None for one or for all: as the model says. Depth
                and segmentation follow the moved camera, and show the scene behind a background.
        """

    def frames(
        self, batch: Batch, ids: np.ndarray, camera: str, size: int, looks: Sequence[Look | None] | None = None
    ) -> np.ndarray:
        """Render the camera's view of some environments, uint8 RGB [len(ids), size, size, 3]."""
        return self.views(batch, ids, camera, size, ("rgb",), looks)["rgb"]

    @abstractmethod
    def render_image(self, batch: Batch, env: int, camera: str, size: int, look: Look | None = None) -> np.ndarray:
        """Render one environment in high quality, with anti-aliasing and shadows; uint8 RGB [size, size, 3]."""

    @abstractmethod
    def close(self) -> None: ...


def resolve(backend: Backend) -> str:
    """Resolve "auto" to a renderer of this machine; refuse a named one that cannot render."""
    if backend == "auto":
        return next((name for name in ("egl", "osmesa") if probe(name) is None), "ray")
    if backend not in ("ray", "egl", "osmesa"):
        raise ValueError(f"sim.renderer must be auto, ray, egl or osmesa, got {backend!r}")
    if backend != "ray" and (reason := probe(backend)) is not None:
        raise ValueError(f"sim.renderer={backend} cannot draw on this machine ({reason}); use sim.renderer=ray")
    return backend


def make_renderer(backend: Backend, model: MjModel, cameras: Mapping[str, Camera]) -> Renderer:
    """Make the renderer of a model whose MJCF holds the same cameras."""
    name = resolve(backend)
    if name == "ray":
        from sims.render.ray import RayRenderer

        return RayRenderer(model, cameras)
    from sims.render.gl import GLRenderer

    return GLRenderer(model, name, cameras)


def shrink(image: np.ndarray, factor: int) -> np.ndarray:
    """Average blocks of factor x factor pixels, [H * f, W * f, C] to [H, W, C]."""
    height, width, channels = image.shape
    return image.reshape(height // factor, factor, width // factor, factor, channels).mean(axis=(1, 3))


def blank(kinds: Sequence[str], count: int, size: int) -> dict[str, np.ndarray]:
    """Empty images of these kinds, {kind: [count, size, size, ...]}."""
    unknown = [kind for kind in kinds if kind not in PIXELS]
    if unknown:
        raise ValueError(f"unknown kinds of images {unknown}; known are {sorted(PIXELS)}")
    return {kind: np.zeros((count, size, size, *PIXELS[kind][1]), PIXELS[kind][0]) for kind in kinds}
