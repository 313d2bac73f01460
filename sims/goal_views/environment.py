"""Environment of the goal-view rooms: first-person pictures, the goal's picture with its mask, and the event."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.goal_views.drawing import draw_view
from sims.goal_views.expert import EVENT_ACTIONS, FORWARD, LEFT, RIGHT, move, plan_actions, step_ahead
from sims.goal_views.layout import Cell
from sims.goal_views.projection import Viewpoint
from sims.goal_views.tasks import EVENTS, EYE_M, FOVY, PITCH, TaskGenerator

_RENDERED = 160  # pixels a side of what people see


class GoalViewEnv(gymnasium.Env):
    """Bring about an event at the object that the goal's mask shows; the layout is seen from within alone.

    Observation "image" uint8 [S, S, 7]: the agent's view (RGB), the goal view (RGB) and the target's mask in it, 0 or
    255; "event": its number in `EVENTS`. Actions: forward, left, right (a quarter turn), break and use. "approach"
    happens when the target is ahead, "break" and "use" by their action at the object ahead; each of the two ends the
    episode, whatever the object. Reward 1 for the task's event at the target, else 0. Scores: `success`, and `wrong`,
    whether another event ended the episode.

    Args:
        render_mode: "rgb_array" for images of what the agent sees.
        options: arguments of `TaskGenerator`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4, "mmrl_infos": ["scores"]}

    def __init__(self, render_mode: str | None = None, **options: Any):
        self.render_mode = render_mode
        self.generator = TaskGenerator(**options)
        size = self.generator.image_size
        image = spaces.Box(0, 255, (size, size, 7), np.uint8)
        self.observation_space = spaces.Dict({"event": spaces.Discrete(len(EVENTS)), "image": image})
        self.action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.seed = int(self.np_random.integers(2**62)) if seed is None else seed
        self.task = self.generator.synthesise(self.seed)
        self.boxes = self.task.layout.boxes()
        self.cell, self.heading = self.task.start, self.task.heading
        mask = self.task.goal_mask[..., None].astype(np.uint8) * np.uint8(255)
        self.goal = np.concatenate([self.task.goal_view, mask], axis=-1)
        self.views: dict[tuple[Cell, int], tuple[np.ndarray, np.ndarray]] = {}  # that the agent has had
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        layout, ended, success = self.task.layout, False, False
        if action in (FORWARD, LEFT, RIGHT):
            self.cell, self.heading = move(layout, self.cell, self.heading, int(action))
            success = self.task.event == "approach" and self._ahead() == layout.cells[self.task.target]
        elif self._ahead() in layout.cells:
            ended, at_target = True, self._ahead() == layout.cells[self.task.target]
            success = at_target and EVENT_ACTIONS.get(self.task.event) == action
        scores = {"success": float(success), "wrong": float(ended and not success)}
        return self._observation(), float(success), ended or success, False, {"scores": scores}

    def plan(self) -> int:
        """The expert's next action; forward where the event has happened."""
        actions = plan_actions(self.task.layout, self.task.target, self.task.event, self.cell, self.heading)
        return actions[0] if actions else FORWARD

    def locate_target(self) -> tuple[bool, tuple[float, float]]:
        """Whether the target is in view, and the centroid of its pixels (column, row) in [0, 1]; (0, 0) if not."""
        mask = self._view()[1] == self.task.target
        if not mask.any():
            return False, (0.0, 0.0)
        rows, columns = (float((places + 0.5).mean()) / len(mask) for places in np.nonzero(mask))
        return True, (columns, rows)

    def render(self) -> np.ndarray:
        """Image of what the agent sees, uint8 [160, 160, 3]."""
        return draw_view(self.boxes, self._viewpoint(), _RENDERED, FOVY)[0]

    def _ahead(self) -> Cell:
        return step_ahead(self.cell, self.heading)

    def _viewpoint(self) -> Viewpoint:
        return Viewpoint((self.cell[0] + 0.5, EYE_M, self.cell[1] + 0.5), self.heading * np.pi / 2, PITCH)

    def _view(self) -> tuple[np.ndarray, np.ndarray]:
        key = self.cell, self.heading
        if key not in self.views:
            self.views[key] = draw_view(self.boxes, self._viewpoint(), self.generator.image_size, FOVY)
        return self.views[key]

    def _observation(self) -> dict[str, Any]:
        image = np.concatenate([self._view()[0], self.goal], axis=-1)
        return {"event": EVENTS.index(self.task.event), "image": image}
