"""One face for every way of drawing the worlds of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import numpy as np
from mujoco import MjModel
from mujoco.batch import Batch

from sims.render.camera import Camera
from sims.render.probe import probe

Backend = Literal["auto", "ray", "egl", "osmesa"]


class Renderer(ABC):
    """Draws worlds of one model. `name` is what is recorded with everything made from its pictures."""

    name: str

    @abstractmethod
    def frames(self, batch: Batch, ids: np.ndarray, camera: str, size: int) -> np.ndarray:
        """What the camera sees in those worlds, uint8 RGB [len(ids), size, size, 3]."""

    @abstractmethod
    def picture(self, batch: Batch, world: int, camera: str, size: int) -> np.ndarray:
        """One world drawn for people: smoother edges, shadows; uint8 RGB [size, size, 3]."""

    @abstractmethod
    def close(self) -> None: ...


def resolve(backend: Backend) -> str:
    """The renderer that "auto" stands for on this machine; a named one is refused when it cannot draw."""
    if backend == "auto":
        return next((name for name in ("egl", "osmesa") if probe(name) is None), "ray")
    if backend not in ("ray", "egl", "osmesa"):
        raise ValueError(f"sim.renderer must be auto, ray, egl or osmesa, got {backend!r}")
    if backend != "ray" and (reason := probe(backend)) is not None:
        raise ValueError(f"sim.renderer={backend} cannot draw on this machine ({reason}); use sim.renderer=ray")
    return backend


def make_renderer(backend: Backend, model: MjModel, cameras: Mapping[str, Camera]) -> Renderer:
    """The renderer for a model whose MJCF holds the same cameras."""
    name = resolve(backend)
    if name == "ray":
        from sims.render.ray import RayRenderer

        return RayRenderer(model, cameras)
    from sims.render.gl import GLRenderer

    return GLRenderer(model, name)
