"""OpenGL renderer, with settings that are fast in software."""

from __future__ import annotations

import atexit
import copy
import functools
import importlib
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from sims.render.base import FAR_M, Kind, Renderer, blank, shrink
from sims.render.camera import Camera
from sims.render.looks import LAMP, PLAIN, Look

_SUPERSAMPLE = 2  # images for people are drawn larger and averaged down
_LARGEST = 1024


class GLRenderer(Renderer):
    """Renders with EGL or OSMesa in a context of its own; MUJOCO_GL is neither read nor set.

    Shadows, multisampling and fine tessellation, not pixels, cost the time on software GL; all three are off.
    """

    def __init__(self, model: mujoco.MjModel, name: str, cameras: Mapping[str, Camera] | None = None):
        self.name = name
        self._model, self._plain, self._shown = fast(model), model, PLAIN
        self._cameras = dict(cameras or {})
        self._colours: weakref.WeakKeyDictionary[Look, np.ndarray] = weakref.WeakKeyDictionary()
        self._data = mujoco.MjData(self._model)
        if os.environ.get("PYOPENGL_PLATFORM", name) != name:
            raise ValueError(
                f"sim.renderer={name}: this process draws with {os.environ['PYOPENGL_PLATFORM']} already (or the "
                "PYOPENGL_PLATFORM variable says so); one process can use one GL back end"
            )
        self._gl = importlib.import_module(f"mujoco.{name}").GLContext(_LARGEST, _LARGEST)
        self._gl.make_current()
        self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        # at the latest before the interpreter ends: both back ends print tracebacks otherwise
        self._free = functools.partial(_free_context, self._context, self._gl)
        atexit.register(self._free)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR.value
        self._option = mujoco.MjvOption()
        self._option.sitegroup[:] = 0  # sites are marks for the code, the ray caster does not draw them either
        self._scene = mujoco.MjvScene(self._model, maxgeom=1000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag.value] = 0

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
        for row, env in enumerate(ids):
            look = (None if looks is None else looks[row]) or PLAIN
            self._arrange(batch, int(env), camera, size, look)
            geoms = self._geoms(size) if "segmentation" in out or look.background is not None else None
            if "segmentation" in out:
                out["segmentation"][row] = geoms
            if "depth" in out:
                out["depth"][row] = self._depth(size)
            if "rgb" in out:
                out["rgb"][row] = self._render_rgb(size)
                if geoms is not None:
                    look.cover(out["rgb"][row], geoms, self._model)
        return out

    def render_image(self, batch: Batch, env: int, camera: str, size: int, look: Look | None = None) -> np.ndarray:
        fine = self.frames(batch, np.array([env]), camera, size * _SUPERSAMPLE, [look or PLAIN])[0]
        return shrink(fine.astype(np.float32), _SUPERSAMPLE).astype(np.uint8)

    def _arrange(self, batch: Batch, env: int, camera: str, size: int, look: Look) -> None:
        """Set the scene to the state of one environment."""
        if size > _LARGEST:
            raise ValueError(f"the GL renderer draws at most {_LARGEST} pixels a side, asked for {size}")
        self._dress(look)
        batch.get_data(env, self._data)
        mujoco.mj_fwdPosition(self._model, self._data)
        view = mujoco.MjvCamera()
        view.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        view.fixedcamid = self._model.camera(camera).id
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, self._data, self._option, None, view, every, self._scene)
        self._gl.make_current()

    def _dress(self, look: Look) -> None:
        """Apply a look to the model; cameras that the renderer does not own keep their places."""
        if look is self._shown:
            return
        model, plain, self._shown = self._model, self._plain, look
        if look not in self._colours:
            self._colours[look] = look.rgb(plain)
        model.geom_rgba[:, :3] = self._colours[look]
        everywhere, lamp = look.bright
        model.vis.headlight.ambient[:] = np.multiply(plain.vis.headlight.ambient, everywhere)
        model.light_diffuse[:] = plain.light_diffuse * lamp
        model.light_dir[:] = plain.light_dir if look.lamp == LAMP else -look.towards_lamp
        for name, spec in self._cameras.items():
            moved, which = look.camera(spec), model.camera(name).id
            model.cam_pos[which] = moved.position
            mujoco.mju_mat2Quat(model.cam_quat[which], moved.axes.T.ravel())

    def _render_rgb(self, size: int, *flags: mujoco.mjtRndFlag) -> np.ndarray:
        """Render the scene with these flags, uint8 RGB [size, size, 3]."""
        return self._read_pixels(size, np.empty((size, size, 3), np.uint8), None, flags)

    def _depth(self, size: int) -> np.ndarray:
        """Render depth along the camera's axis, metres, float32 [size, size]."""
        buffer = self._read_pixels(size, None, np.empty((size, size), np.float32), ())
        extent, clip = self._model.stat.extent, self._model.vis.map
        # the buffer is 1 at the near plane, 0 at the far one, and linear in one over the depth
        near, far = 1 / (clip.znear * extent), 1 / (clip.zfar * extent)
        return np.minimum(1 / (far + buffer.astype(np.float64) * (near - far)), FAR_M)

    def _geoms(self, size: int) -> np.ndarray:
        """Render geom ids, -1 for the background, int32 [size, size]."""
        flags = (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR)
        colour = self._render_rgb(size, *flags).astype(np.int32)
        ids = np.full(self._scene.ngeom + 1, -1, np.int32)  # entry 0 stands for the sky
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.segid >= 0 and geom.objtype == mujoco.mjtObj.mjOBJ_GEOM.value:
                ids[geom.segid + 1] = geom.objid
        return ids[colour[..., 0] + (colour[..., 1] << 8) + (colour[..., 2] << 16)]

    def _read_pixels(
        self, size: int, image: np.ndarray | None, depth: np.ndarray | None, flags: Sequence[mujoco.mjtRndFlag]
    ) -> np.ndarray:
        rectangle = mujoco.MjrRect(0, 0, size, size)
        for flag in flags:
            self._scene.flags[flag.value] = 1
        mujoco.mjr_render(rectangle, self._scene, self._context)
        for flag in flags:
            self._scene.flags[flag.value] = 0
        mujoco.mjr_readPixels(image, depth, rectangle, self._context)
        return (image if depth is None else depth)[::-1]  # type: ignore[index]

    def close(self) -> None:
        if self._gl is not None:
            atexit.unregister(self._free)
            self._free()
            self._gl = None


def _free_context(context: mujoco.MjrContext, gl: Any) -> None:
    context.free()
    gl.free()


def fast(model: mujoco.MjModel) -> mujoco.MjModel:
    """Copy the model with fast settings: no shadow map, no multisampling, coarse tessellation."""
    model = copy.copy(model)
    quality = model.vis.quality
    quality.shadowsize, quality.offsamples, quality.numslices, quality.numstacks = 0, 0, 12, 8
    model.vis.global_.offwidth = model.vis.global_.offheight = _LARGEST
    return model


def self_test(name: str) -> None:
    """Render a lit ball and raise unless the image shows it."""
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><light pos="1 1 3"/><geom size=".2" rgba="1 0 0 1"/>'
        '<camera name="eye" pos="0 0 1" fovy="45"/></worldbody></mujoco>'
    )
    renderer = GLRenderer(model, name)
    image = renderer.frames(Batch(model, 1, 1), np.array([0]), "eye", 64)[0]
    renderer.close()
    if not (image[32, 32, 0] > 60 and image[32, 32, 0] > 2 * image[32, 32, 1] and image[2, 2].max() < 60):
        raise RuntimeError(f"{name} made a context, but the image is wrong: centre {image[32, 32].tolist()}")
