"""Tabletop manipulation with a seven-joint arm: our own MuJoCo scenes, rendered without GL."""

from sims.tabletop.experts import expert
from sims.tabletop.sims import OpenDrawer, PickPlace, PressButtons, Push, Reach, Stack
from sims.tabletop.suite import Suite

__all__ = ["OpenDrawer", "PickPlace", "PressButtons", "Push", "Reach", "Stack", "Suite", "expert"]
