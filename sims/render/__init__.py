"""Cameras and renderers."""

from sims.render.base import Renderer, make_renderer
from sims.render.camera import Camera
from sims.render.looks import PLAIN, Look
from sims.render.probe import probe

__all__ = ["PLAIN", "Camera", "Look", "Renderer", "make_renderer", "probe"]
