"""Schedules: numbers of the configuration that change over the iterations of a run."""

from mmrl.schedules.base import Schedule
from mmrl.schedules.controllers import AdaptiveKL, EntropyBand
from mmrl.schedules.shapes import Alternating, Cosine, CosineCycle, Linear, Piecewise

__all__ = ["AdaptiveKL", "Alternating", "Cosine", "CosineCycle", "EntropyBand", "Linear", "Piecewise", "Schedule"]
