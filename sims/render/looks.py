"""Visual appearance of one environment: camera, lamp, colours and background."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from mujoco import MjModel

from mmrl.core.rng import derive_rng
from sims.render.camera import Camera, Point

LAMP: Point = (0.35, -0.45, 0.82)  # towards the lamp; scaled to length one where it is used


@dataclass(frozen=True, eq=False)
class Look:
    """Changes of the renderer for one environment. Looks are compared by identity: keep and reuse the same object.

    Args:
        shift: of the camera, metres.
        yaw: turn of the camera about the environment's vertical, rad, to the left.
        pitch: turn of the camera upwards, rad.
        lamp: towards the lamp; any length.
        bright: factors of the light that comes from everywhere and of the lamp's.
        colours: new colours of geoms by name, RGB in [0, 1]; names that the model lacks are passed over.
        tint: largest change of the other named geoms' colours, per channel in [0, 1]; one change per body.
        seed: of those changes.
        background: uint8 [H, W, 3], shown where only the sky or one of `backdrop` is seen; None keeps both.
        backdrop: names of geoms that the background covers.
    """

    shift: Point = (0.0, 0.0, 0.0)
    yaw: float = 0.0
    pitch: float = 0.0
    lamp: Point = LAMP
    bright: tuple[float, float] = (1.0, 1.0)
    colours: Mapping[str, Point] = field(default_factory=lambda: MappingProxyType({}))
    tint: float = 0.0
    seed: int = 0
    background: np.ndarray | None = None
    backdrop: tuple[str, ...] = ()

    @property
    def towards_lamp(self) -> np.ndarray:
        """Unit vector towards the lamp, [3]."""
        return np.asarray(self.lamp) / np.linalg.norm(self.lamp)

    def camera(self, camera: Camera) -> Camera:
        """Shift and turn a camera; its vertical axis stays upright."""
        _, up, back = camera.axes
        away = np.linalg.norm(np.subtract(camera.target, camera.position))
        aim = -np.cos(self.pitch) * back + np.sin(self.pitch) * up
        # about the vertical: what points up stays, the rest turns
        x, y, z = aim
        cos, sin = np.cos(self.yaw), np.sin(self.yaw)
        aim = np.array([cos * x - sin * y, sin * x + cos * y, z])
        position = np.add(camera.position, self.shift)
        place, target = tuple(position.tolist()), tuple((position + away * aim).tolist())
        return replace(camera, position=place, target=target)

    def rgb(self, model: MjModel) -> np.ndarray:
        """Colours of all geoms of the model, [ngeom, 3] in [0, 1]."""
        colours = model.geom_rgba[:, :3].astype(np.float64)
        for geom in range(model.ngeom if self.colours or self.tint else 0):
            name, body = model.geom(geom).name, model.body(model.geom_bodyid[geom]).name
            if name in self.colours:
                colours[geom] = self.colours[name]
            elif name and self.tint:
                shift = derive_rng("tint", self.seed, body).uniform(-self.tint, self.tint, 3)
                colours[geom] = np.clip(colours[geom] + shift, 0, 1)
        return colours

    def cover(self, image: np.ndarray, geoms: np.ndarray, model: MjModel) -> None:
        """Paint the background into an image [..., 3] whose pixels show these geoms, both in rows of a square."""
        if self.background is None:
            return
        hidden = np.isin(geoms, [-1, *(g for g in range(model.ngeom) if model.geom(g).name in self.backdrop)])
        size = round(geoms.size**0.5)
        image[hidden] = resize(self.background, size).reshape(*geoms.shape, 3)[hidden]


PLAIN = Look()
"""The scene as its model says."""


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """Resize an image with nearest-neighbour sampling, uint8 [size, size, 3]."""
    rows, columns = ((np.arange(size) + 0.5) / size * side for side in image.shape[:2])
    return image[rows.astype(int)[:, None], columns.astype(int)]
