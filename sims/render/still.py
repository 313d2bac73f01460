"""Cache of the static part of the scene, cast once per camera and look."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import MjModel
from mujoco.batch import Batch

from sims.render.camera import Camera
from sims.render.looks import PLAIN, Look
from sims.render.tiles import Tiles

STATIC_GROUP = 1
"""Geoms of this group never move."""

_AMBIENT, _DIFFUSE, _FRONTAL = 0.42, 0.42, 0.20  # from everywhere, from the lamp, from the camera
_HORIZON, _ZENITH = np.array([226.0, 232.0, 238.0]), np.array([164.0, 186.0, 208.0])
_KEPT_PIXELS = 1 << 22  # of looks that are remembered, some 40 bytes each


@dataclass(frozen=True)
class StillView:
    """Camera view of the static geoms, for all environments (W = 1) or for W environments of different looks."""

    origin: np.ndarray  # [W, 3] metres
    rays: np.ndarray  # [W, P, 3]
    cosine: np.ndarray  # [P] of the angle between a pixel's ray and the optical axis
    tiles: Tiles
    distance: np.ndarray  # [W, P] metres along the ray, infinite where nothing is hit
    colour: np.ndarray  # [W, P, 3] shaded, 0 to 255
    geom: np.ndarray  # [W, P] geom ids, -1 where nothing is hit
    lamp: np.ndarray  # [W, 3] unit vector towards it
    bright: np.ndarray  # [W, 2] strength of the light from everywhere and of the lamp
    rgb: np.ndarray  # [W, geoms, 3] unshaded, 0 to 255

    @classmethod
    def stack(cls, views: Sequence[StillView]) -> StillView:
        """Concatenate views of one camera and size, one per environment."""
        if len(views) == 1:
            return views[0]
        names = ("origin", "rays", "distance", "colour", "geom", "lamp", "bright", "rgb")
        columns = {name: np.concatenate([getattr(view, name) for view in views]) for name in names}
        return cls(**columns, cosine=views[0].cosine, tiles=Tiles.stack([view.tiles for view in views]))

    def of(self, name: str, env: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Entries `index` of a column, each from the row of its environment."""
        column = getattr(self, name)
        return column[0][index] if len(column) == 1 else column[env, index]

    def shade(self, env: np.ndarray, geom: np.ndarray, normal: np.ndarray, ray: np.ndarray) -> np.ndarray:
        """Lambert: colour * (ambient + diffuse max(0, n.l) + frontal max(0, -n.r)), uint8 [K, 3]."""
        alike = len(self.lamp) == 1
        (x, y, z), (ambient, diffuse) = (t[0] if alike else t[env].T for t in (self.lamp, self.bright))
        # sums written out: a dot product's order of additions may depend on how many rows there are
        lit = normal[:, 0] * x + normal[:, 1] * y + normal[:, 2] * z
        facing = -(normal[:, 0] * ray[:, 0] + normal[:, 1] * ray[:, 1] + normal[:, 2] * ray[:, 2])
        bright = ambient + diffuse * np.maximum(lit, 0) + _FRONTAL * np.maximum(facing, 0)
        return np.minimum(self.of("rgb", env, geom) * bright[:, None], 255).astype(np.uint8)


class StillViews:
    """Computes and caches views: those of the plain look always, the others while memory lasts."""

    def __init__(self, model: MjModel, cameras: Mapping[str, Camera]):
        self.model, self.cameras = model, dict(cameras)
        self._batch = Batch(model, 1, 1)  # an environment of its own
        self._static = (np.arange(mujoco.mjNGROUP) == STATIC_GROUP).astype(np.uint8)
        self._plain: dict[tuple[str, int], StillView] = {}
        self._looked: OrderedDict[tuple[Look, str, int], StillView] = OrderedDict()

    def view(self, camera: str, size: int, looks: Sequence[Look | None] | None = None) -> StillView:
        """The view for environments of these looks; None: all have the model's look."""
        first = looks[0] if looks else None
        if looks is None or all(look is first for look in looks):
            return self._cached_view(camera, size, first or PLAIN)
        return StillView.stack([self._cached_view(camera, size, look or PLAIN) for look in looks])

    def clear(self) -> None:
        self._plain.clear()
        self._looked.clear()

    def _cached_view(self, camera: str, size: int, look: Look) -> StillView:
        if look is PLAIN:
            if (camera, size) not in self._plain:
                self._plain[camera, size] = self._make(camera, size, look)
            return self._plain[camera, size]
        key = (look, camera, size)
        if key not in self._looked:
            self._looked[key] = self._make(camera, size, look)
            while len(self._looked) > 1 and sum(entry[2] ** 2 for entry in self._looked) > _KEPT_PIXELS:
                self._looked.popitem(last=False)
        self._looked.move_to_end(key)
        return self._looked[key]

    def _make(self, camera: str, size: int, look: Look) -> StillView:
        spec = look.camera(self.cameras[camera]) if look is not PLAIN else self.cameras[camera]
        rays, origin = spec.rays(size), np.asarray(spec.position, float)
        distance, geom, normal = self._batch.ray(origin, rays, geomgroup=self._static, normal=True)
        hit = geom[0] >= 0
        sky = np.clip(rays[:, 2:] * 1.5 + 0.5, 0, 1)
        colour = _HORIZON * (1 - sky) + _ZENITH * sky
        view = StillView(
            origin=origin[None],
            rays=rays[None],
            cosine=-(rays @ spec.axes[2]),
            tiles=Tiles.cut(rays),
            distance=np.where(hit, distance, np.inf),
            colour=colour.astype(np.uint8)[None],
            geom=geom,
            lamp=look.towards_lamp[None],
            bright=np.multiply((_AMBIENT, _DIFFUSE), look.bright)[None],
            rgb=look.rgb(self.model)[None] * 255,
        )
        view.colour[0, hit] = view.shade(np.zeros(hit.sum(), int), geom[0][hit], normal[0][hit], rays[hit])
        look.cover(view.colour[0], geom[0], self.model)
        return view
