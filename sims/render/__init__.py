"""Cameras and the ways to draw what they see."""

from sims.render.base import Renderer, make_renderer
from sims.render.camera import Camera
from sims.render.probe import probe

__all__ = ["Camera", "Renderer", "make_renderer", "probe"]
