"""Ray-casting renderer on MuJoCo alone, without GL and with the same bits on every machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from mujoco import MjModel
from mujoco.batch import Batch

from sims.render.base import FAR_M, Kind, Renderer, blank, shrink
from sims.render.camera import Camera
from sims.render.looks import Look
from sims.render.still import STATIC_GROUP, StillView, StillViews

__all__ = ["STATIC_GROUP", "RayRenderer"]

_AT_ONCE = 64  # environments in one cast; bounds the memory for rays
_SUPERSAMPLE = 2  # images for people
_SHADOW = 0.62


class RayRenderer(Renderer):
    """Casts one ray per pixel with Lambert shading. Geoms of group `STATIC_GROUP` are assumed never to move."""

    name = "ray"

    def __init__(self, model: MjModel, cameras: Mapping[str, Camera]):
        self._still = StillViews(model, cameras)
        self._moving_groups = (np.arange(mujoco.mjNGROUP) != STATIC_GROUP).astype(np.uint8)
        self._moving = np.flatnonzero(model.geom_group != STATIC_GROUP)
        bound = model.geom_rbound[self._moving]
        self._radii = np.where(bound > 0, bound, np.inf)  # zero stands for a plane

    def views(
        self,
        batch: Batch,
        ids: np.ndarray,
        camera: str,
        size: int,
        kinds: Sequence[Kind] = ("rgb",),
        looks: Sequence[Look | None] | None = None,
    ) -> dict[str, np.ndarray]:
        out = blank(kinds, len(ids), size)
        for start in range(0, len(ids), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            view = self._still.view(camera, size, looks[part] if looks is not None else None)
            colour, geom, distance = self._cast(batch, ids[part], view)
            for kind, image in out.items():
                if kind == "rgb":
                    image[part] = colour.reshape(-1, size, size, 3)
                elif kind == "segmentation":
                    image[part] = geom.reshape(-1, size, size)
                else:
                    image[part] = np.minimum(distance * view.cosine, FAR_M).reshape(-1, size, size)
        return out

    def render_image(self, batch: Batch, env: int, camera: str, size: int, look: Look | None = None) -> np.ndarray:
        side, ids = size * _SUPERSAMPLE, np.array([env])
        view = self._still.view(camera, side, None if look is None else [look])
        colour, geom, distance = (column[0] for column in self._cast(batch, ids, view))
        image = colour.astype(np.float32)
        solid = np.flatnonzero(geom >= 0)
        shaded = self._in_shadow(batch, ids, view, distance[solid], view.rays[0][solid], self._moving_groups)
        image[solid[shaded]] *= _SHADOW
        return shrink(image.reshape(side, side, 3), _SUPERSAMPLE).round().astype(np.uint8)

    def close(self) -> None:
        self._still.clear()

    def _in_shadow(
        self, batch: Batch, ids: np.ndarray, view: StillView, distance: np.ndarray, rays: np.ndarray, groups: np.ndarray
    ) -> np.ndarray:
        """Whether geoms of these groups block the lamp at the surfaces that the rays hit, bool [K]."""
        # start a little off the surface, towards the camera, so that it does not shade itself
        start = view.origin[0] + rays * (distance[:, None] - 1e-3)
        return batch.ray(start, view.lamp[0], geomgroup=groups, ids=ids)[1][0] >= 0

    def _cast(self, batch: Batch, ids: np.ndarray, view: StillView) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Colours [k, P, 3], geom ids [k, P] and distances along the ray [k, P] of every pixel's nearest surface."""
        places = batch.bind("geom_xpos")  # bound first: the call fills what is bound
        batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_POS.value)
        centres = places[ids][:, self._moving]
        cast = view.tiles.pixels[view.tiles.worth_casting(view.origin, centres, self._radii)].reshape(len(ids), -1)
        rays = view.of("rays", np.arange(len(ids))[:, None], cast)
        groups = self._moving_groups
        hit, what, normal = batch.ray(view.origin[:, None], rays, geomgroup=groups, ids=ids, normal=True)
        env, ray = np.nonzero((what >= 0) & (hit < view.of("distance", np.arange(len(ids))[:, None], cast)))
        pixel, what, hit = cast[env, ray], what[env, ray], hit[env, ray]
        colour, geom, distance = (
            np.repeat(a, len(ids) // len(a), axis=0) for a in (view.colour, view.geom, view.distance)
        )
        colour[env, pixel] = view.shade(env, what, normal[env, ray], rays[env, ray])
        geom[env, pixel], distance[env, pixel] = what, hit
        return colour, geom, distance
