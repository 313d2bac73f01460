"""OpenGL pictures, with the settings that make software GL fast."""

from __future__ import annotations

import copy
import importlib

import mujoco
import numpy as np
from mujoco.batch import Batch

from sims.render.base import Renderer

_SUPERSAMPLE = 2  # pictures for people are drawn larger and averaged down
_LARGEST = 1024


class GLRenderer(Renderer):
    """Draws with EGL or OSMesa. The context is made here, so the MUJOCO_GL variable is neither read nor set.

    Shadows, multisampling and fine tessellation, not pixels, cost the time on software GL; all three are off.
    """

    def __init__(self, model: mujoco.MjModel, name: str):
        self.name = name
        self._model = fast(model)
        self._data = mujoco.MjData(self._model)
        self._gl = importlib.import_module(f"mujoco.{name}").GLContext(_LARGEST, _LARGEST)
        self._gl.make_current()
        self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(self._model, maxgeom=1000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag.value] = 0

    def frames(self, batch: Batch, ids: np.ndarray, camera: str, size: int) -> np.ndarray:
        out = np.empty((len(ids), size, size, 3), np.uint8)
        for row, world in enumerate(ids):
            out[row] = self._draw(batch, int(world), camera, size)
        return out

    def picture(self, batch: Batch, world: int, camera: str, size: int) -> np.ndarray:
        fine = self._draw(batch, world, camera, size * _SUPERSAMPLE)
        return shrink(fine.astype(np.float32), _SUPERSAMPLE).astype(np.uint8)

    def _draw(self, batch: Batch, world: int, camera: str, size: int) -> np.ndarray:
        if size > _LARGEST:
            raise ValueError(f"the GL renderer draws at most {_LARGEST} pixels a side, asked for {size}")
        batch.get_data(world, self._data)
        mujoco.mj_fwdPosition(self._model, self._data)
        view = mujoco.MjvCamera()
        view.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        view.fixedcamid = self._model.camera(camera).id
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, self._data, mujoco.MjvOption(), None, view, every, self._scene)
        self._gl.make_current()
        rectangle = mujoco.MjrRect(0, 0, size, size)
        mujoco.mjr_render(rectangle, self._scene, self._context)
        image = np.empty((size, size, 3), np.uint8)
        mujoco.mjr_readPixels(image, None, rectangle, self._context)
        return image[::-1]

    def close(self) -> None:
        if self._gl is not None:
            self._context.free()
            self._gl.free()  # OSMesa prints a traceback at exit otherwise
            self._gl = None


def fast(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of the model that draws quickly: no shadow map, no multisampling, coarse round shapes."""
    model = copy.copy(model)
    quality = model.vis.quality
    quality.shadowsize, quality.offsamples, quality.numslices, quality.numstacks = 0, 0, 12, 8
    model.vis.global_.offwidth = model.vis.global_.offheight = _LARGEST
    return model


def shrink(image: np.ndarray, factor: int) -> np.ndarray:
    """Average blocks of factor x factor pixels, [H * f, W * f, C] to [H, W, C]."""
    height, width, channels = image.shape
    return image.reshape(height // factor, factor, width // factor, factor, channels).mean(axis=(1, 3))


def self_test(name: str) -> None:
    """Draw a lit ball and fail unless the picture shows it."""
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><light pos="1 1 3"/><geom size=".2" rgba="1 0 0 1"/>'
        '<camera name="eye" pos="0 0 1" fovy="45"/></worldbody></mujoco>'
    )
    renderer = GLRenderer(model, name)
    image = renderer.frames(Batch(model, 1, 1), np.array([0]), "eye", 64)[0]
    renderer.close()
    if not (image[32, 32, 0] > 60 and image[32, 32, 0] > 2 * image[32, 32, 1] and image[2, 2].max() < 60):
        raise RuntimeError(f"{name} made a context, but the picture is wrong: centre {image[32, 32].tolist()}")
