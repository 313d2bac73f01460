"""Task: press buttons in the named order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sims.tabletop.layout import scatter
from sims.tabletop.sentences import THEN
from sims.tabletop.task import Start, TabletopState, TabletopTask, length
from sims.tabletop.things import Button

PRESSED_M = 0.008  # deeper than this a button is pressed
_APART_M = 0.12
_DONE, _WRONG, _DOWN = 0, 1, 2  # columns of the memory: presses in order, any other, which buttons are down


@dataclass(frozen=True)
class ButtonsTask(TabletopTask):
    """Success: the named buttons were pressed in the named order. Any other press fails ("wrong_object").

    A press counts when the button goes down; it must come up again to count once more.

    Args:
        colours: of the buttons; names of `sims.tabletop.things.COLOURS`.
        presses: how many buttons are named.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...]
    presses: int
    joint_noise: float
    name = "buttons"
    events = ("success", "wrong_object")
    terms = ("tip_distance_m", "progress")

    @property
    def memory(self) -> int:  # type: ignore[override]
        return _DOWN + len(self.colours)

    @property
    def things(self) -> tuple[Button, ...]:
        return tuple(Button(f"button_{colour}", colour) for colour in self.colours)

    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        order = tuple(int(k) for k in rng.permutation(len(self.colours))[: self.presses])
        text = templates[int(rng.integers(len(templates)))]
        return Start(
            objects=scatter(rng, [thing.rest_m for thing in self.things], _APART_M),
            joints=rng.uniform(-self.joint_noise, self.joint_noise, 7),
            named=order,
            instruction=text.replace("{buttons}", THEN.join(self.colours[k] for k in order)),
        )

    def remember(self, state: TabletopState) -> np.ndarray:
        down = state.travel >= PRESSED_M
        new = down & (state.memory[:, _DOWN:] == 0)
        done = state.memory[:, _DONE].astype(np.int64)
        due = state.named[np.arange(len(done)), np.minimum(done, self.presses - 1)]
        right = new & (np.arange(new.shape[1]) == due[:, None]) & (done < self.presses)[:, None]
        wrong = (new & ~right).any(1) | (state.memory[:, _WRONG] > 0)
        return np.column_stack([done + right.any(1), wrong, down]).astype(np.float64)

    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        wrong = state.memory[:, _WRONG] > 0
        return {"success": (state.memory[:, _DONE] >= self.presses) & ~wrong, "wrong_object": wrong}

    def due(self, memory: np.ndarray) -> np.ndarray:
        """Place in the order of the next button to press, [n]."""
        return np.minimum(memory[:, _DONE].astype(np.int64), self.presses - 1)

    def measure(self, state: TabletopState) -> dict[str, np.ndarray]:
        """tip_distance_m: tip to the button to press next; progress: share of the presses."""
        rows = np.arange(len(state.tip))
        place = state.objects[rows, state.named[rows, self.due(state.memory)]]
        return {
            "tip_distance_m": length(place - state.tip),
            "progress": state.memory[:, _DONE] / self.presses,
        }
