"""Small details in large images, which need a closer look."""

from tasks.acuity.task import Acuity

__all__ = ["Acuity"]
