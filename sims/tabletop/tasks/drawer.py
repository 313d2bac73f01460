"""Task: open the named drawer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sims.tabletop.task import Start, TabletopState, TabletopTask, length
from sims.tabletop.things import Drawer

WRONG_M = 0.03  # another drawer that was opened this far ends the episode
_HANDLE_X = 0.45  # metres; of closed handles, about
_WIDTH_M = 0.15  # from one drawer to the next


@dataclass(frozen=True)
class DrawerTask(TabletopTask):
    """Success: the named drawer is open by `open_m`. Opening another one by 3 cm fails ("wrong_object").

    The drawers stand side by side in any order and face away from the arm, so that the camera sees them open.

    Args:
        colours: of the drawers, at most three; names of `sims.tabletop.things.COLOURS`.
        open_m: how far counts as open, metres.
        shift_m: largest displacement of a drawer from its place in the row, metres.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...]
    open_m: float
    shift_m: float
    joint_noise: float
    name = "drawer"
    events = ("success", "wrong_object")
    terms = ("tip_distance_m", "progress")

    @property
    def things(self) -> tuple[Drawer, ...]:
        return tuple(Drawer(f"drawer_{colour}", colour) for colour in self.colours)

    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        count = len(self.colours)
        goal = int(rng.integers(count))
        text = templates[int(rng.integers(len(templates)))]
        row = (rng.permutation(count) - (count - 1) / 2) * _WIDTH_M
        shift = rng.uniform(-self.shift_m, self.shift_m, (count, 2)) * np.array([1.0, 0.4])
        heights = [thing.rest_m for thing in self.things]
        return Start(
            objects=np.column_stack([_HANDLE_X + shift[:, 0], row + shift[:, 1], heights]),
            joints=rng.uniform(-self.joint_noise, self.joint_noise, 7),
            named=(goal,),
            instruction=text.replace("{drawer}", self.colours[goal]),
        )

    def strict(self) -> DrawerTask:
        return replace(self, open_m=self.open_m + 0.01)

    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        target = state.is_named(0)
        return {
            "success": ((state.travel >= self.open_m) & target).any(1),
            "wrong_object": ((state.travel >= WRONG_M) & ~target).any(1),
        }

    def measure(self, state: TabletopState) -> dict[str, np.ndarray]:
        """tip_distance_m: tip to the named handle; progress: how far its drawer is open, as a share."""
        opened = (state.travel * state.is_named(0)).sum(1)
        return {
            "tip_distance_m": length(state.thing(0) - state.tip),
            "progress": np.clip(opened / self.open_m, 0, 1),
        }
