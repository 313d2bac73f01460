"""LIBERO as a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sims.libero.sizes import sizes
from sims.workers.demonstrations import Demo, demonstrate
from sims.workers.sized_guest import SizedGuestSim


@dataclass(frozen=True)
class LiberoSim(SizedGuestSim):
    """Tasks of a LIBERO suite with their stored initial states; `sims.libero.guest.Libero` runs on the other side.

    Args:
        suite: object, spatial, goal, 10 or 90.
        tasks: numbers or parts of names of some of its tasks; empty: all.
        perturbation: of the tasks of held-out states, from LIBERO-PRO: none, language (the sentence is worded
            differently), object (it looks different), position (objects have changed places) or task (another goal).
        held_out_states: how many of a task's 50 stored states are held out, the last ones; 50: all of them, as in
            published evaluations.
        chunk: control steps (20 Hz) per decision, executed open loop.
        max_steps: control steps after which an episode is cut; null: 280, 220, 300, 520 and 400 in the suites object,
            spatial, goal, 10 and 90, as in OpenVLA's evaluation.
        settle_steps: control steps with an open gripper before the first observation, while objects come to rest.
        image_size: pixels a side; 0: no images.
        cameras: agent (in front of the robot) and wrist; the first is the observation's "image", the second "image_2".
        renderer: ray (surfaces in plain colours, without OpenGL), egl or osmesa (with textures).
        orientation: of images: upright; robosuite (upside down, as robosuite gives them); rotated, which is that turned
            by 180 degrees, as OpenVLA and other published policies expect them.
    """

    suite: str = "object"
    tasks: tuple[int | str, ...] = ()
    perturbation: str = "none"
    held_out_states: int = 10
    chunk: int = 1
    max_steps: int | None = None
    settle_steps: int = 10
    image_size: int = 0
    cameras: tuple[str, ...] = ("agent",)
    renderer: str = "ray"
    orientation: str = "upright"
    timeout_s: float = field(default=300.0, kw_only=True)  # the first steps compile, and a reset builds scenes

    guest: ClassVar[str] = "sims.libero.guest:Libero"
    environment: ClassVar[str | None] = ".venv-libero"
    make_target: ClassVar[str | None] = "libero"

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def stepwise(self) -> LiberoSim:
        return replace(self, chunk=1)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.2) -> list[Demo]:
        """Record the expert from the states of `seeds`: (raw observation, chunk [chunk, 7]) from every control step.

        The expert may take the suite's control steps, whatever max_steps is.

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions, so that a clone sees how to
                come back from small errors.
        """
        return demonstrate(replace(self, chunk=1, max_steps=None), seeds, self.chunk, noise)
