"""Pictures by ray casting: MuJoCo's wheel alone is enough, no GL library, the same bits on every machine's driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from mujoco import MjModel
from mujoco.batch import Batch

from sims.render.base import Renderer
from sims.render.camera import Camera
from sims.render.gl import shrink

STATIC_GROUP = 1
"""Geoms of this group never move: they are cast once per camera, not once per frame."""

_AT_ONCE = 64  # worlds in one cast; bounds the memory for rays
_LIGHT = np.array([0.35, -0.45, 0.82]) / np.linalg.norm([0.35, -0.45, 0.82])
_AMBIENT, _DIFFUSE, _FRONTAL = 0.42, 0.42, 0.20  # from everywhere, from the lamp, from the camera
_HORIZON, _ZENITH = np.array([226.0, 232.0, 238.0]), np.array([164.0, 186.0, 208.0])
_SUPERSAMPLE = 3  # pictures for people
_SHADOW = 0.62


@dataclass(frozen=True)
class _View:
    """What a camera sees of the things that never move."""

    origin: np.ndarray  # [3]
    rays: np.ndarray  # [P, 3]
    distance: np.ndarray  # [P] metres, infinite where nothing is hit
    colour: np.ndarray  # [P, 3] shaded, 0 to 255
    geom: np.ndarray  # [P] geom ids, -1 where nothing is hit


class RayRenderer(Renderer):
    """One ray per pixel with Lambert shading; also tells which geom each pixel shows."""

    name = "ray"

    def __init__(self, model: MjModel, cameras: Mapping[str, Camera]):
        self._cameras = dict(cameras)
        self._rgb = model.geom_rgba[:, :3].astype(np.float64) * 255
        self._views: dict[tuple[str, int], _View] = {}
        # one world of its own for what never moves
        self._still = Batch(model, 1, 1)
        groups = np.arange(6)
        self._moving_groups = (groups != STATIC_GROUP).astype(np.uint8)
        self._static_groups = (groups == STATIC_GROUP).astype(np.uint8)

    def frames(self, batch: Batch, ids: np.ndarray, camera: str, size: int) -> np.ndarray:
        return self._images(batch, ids, camera, size)[0]

    def geoms(self, batch: Batch, ids: np.ndarray, camera: str, size: int) -> np.ndarray:
        """Id of the geom that each pixel shows, -1 for the background, int32 [len(ids), size, size]."""
        return self._images(batch, ids, camera, size)[1]

    def _images(self, batch: Batch, ids: np.ndarray, camera: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        images = np.empty((len(ids), size, size, 3), np.uint8)
        geoms = np.empty((len(ids), size, size), np.int32)
        view = self._view(camera, size)
        for start in range(0, len(ids), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            colour, geom, _ = self._cast(batch, ids[part], view)
            images[part] = colour.reshape(-1, size, size, 3)
            geoms[part] = geom.reshape(-1, size, size)
        return images, geoms

    def picture(self, batch: Batch, world: int, camera: str, size: int) -> np.ndarray:
        view = self._view(camera, size * _SUPERSAMPLE)
        ids = np.array([world])
        colour, geom, distance = self._cast(batch, ids, view)
        image = colour[0].astype(np.float32)
        solid = np.flatnonzero(geom[0] >= 0)
        # start a little off the surface, towards the camera, so that it does not shade itself
        start = view.origin + view.rays[solid] * (distance[0, solid, None] - 1e-3)
        blocked = batch.ray(start, _LIGHT, geomgroup=None, ids=ids)[1][0] >= 0
        image[solid[blocked]] *= _SHADOW
        side = size * _SUPERSAMPLE
        return shrink(image.reshape(side, side, 3), _SUPERSAMPLE).round().astype(np.uint8)

    def close(self) -> None:
        self._views.clear()

    def _view(self, camera: str, size: int) -> _View:
        if (camera, size) not in self._views:
            spec = self._cameras[camera]
            rays, origin = spec.rays(size), np.asarray(spec.position, float)
            # reset leaves the moving things where the model has them: only the static group is cast here
            distance, geom, normal = self._still.ray(origin, rays, geomgroup=self._static_groups, normal=True)
            distance, geom, normal = distance[0], geom[0], normal[0]
            hit = geom >= 0
            sky = np.clip(rays[:, 2:] * 1.5 + 0.5, 0, 1)
            colour = _HORIZON * (1 - sky) + _ZENITH * sky
            colour[hit] = self._shade(geom[hit], normal[hit], rays[hit])
            far = np.where(hit, distance, np.inf)
            self._views[camera, size] = _View(origin, rays, far, colour.astype(np.uint8), geom)
        return self._views[camera, size]

    def _cast(self, batch: Batch, ids: np.ndarray, view: _View) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Colours [k, P, 3], geom ids [k, P] and distances [k, P] of every pixel's nearest surface."""
        distance, geom, normal = batch.ray(view.origin, view.rays, geomgroup=self._moving_groups, ids=ids, normal=True)
        front = (geom >= 0) & (distance < view.distance)
        world, pixel = np.nonzero(front)
        colour = np.repeat(view.colour[None], len(ids), axis=0)
        colour[world, pixel] = self._shade(geom[world, pixel], normal[world, pixel], view.rays[pixel])
        return colour, np.where(front, geom, view.geom), np.where(front, distance, view.distance)

    def _shade(self, geom: np.ndarray, normal: np.ndarray, ray: np.ndarray) -> np.ndarray:
        """Lambert: colour * (ambient + diffuse max(0, n.l) + frontal max(0, -n.r)), uint8 [K, 3]."""
        # sums written out: a dot product's order of additions may depend on how many rows there are
        lamp = normal[:, 0] * _LIGHT[0] + normal[:, 1] * _LIGHT[1] + normal[:, 2] * _LIGHT[2]
        facing = -(normal[:, 0] * ray[:, 0] + normal[:, 1] * ray[:, 1] + normal[:, 2] * ray[:, 2])
        bright = _AMBIENT + _DIFFUSE * np.maximum(lamp, 0) + _FRONTAL * np.maximum(facing, 0)
        return np.minimum(self._rgb[geom] * bright[:, None], 255).astype(np.uint8)
