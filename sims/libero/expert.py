"""Scripted expert for tasks that put one object into or onto another, from the true poses."""

from __future__ import annotations

import numpy as np

from sims.libero.outline import Outline, find_grip, outline_of
from sims.libero.scene import OPEN, EpisodeState

_METRES = 0.05
"""What the controller moves towards at an action of 1, per control step."""
_RADIANS = 0.5
_GAIN = 3.0
_CLOSE_M = 0.012
_HOVER_M = 0.08
"""Of the fingertips over the object before they are lowered."""
_CLEARANCE_M = 0.05
"""Of what is carried over the rim of its goal."""
_FINGER_M = 0.035
"""How far fingers reach below the top of an object at most."""
_LOWEST_M = 0.012
"""Height of the fingertips over what the object stands on at least."""
_GRIP_STEPS = 12
_RELEASE_STEPS = 10
_GOALS = ("in", "on")


class PickAndPlace:
    """Hover, lower, grip, lift, carry, lower and release; begins anew when the object slips.

    Args:
        episode: in its first state.

    Raises:
        ValueError: the goal is not one object in or on another.
    """

    def __init__(self, episode: EpisodeState):
        self.episode = episode
        self.object, self.goal = _read_goal(episode)
        self._begin()

    def _begin(self) -> None:
        """Choose the grip, from where the object is."""
        self._phase, self._waited = "hover", 0
        episode = self.episode
        episode.activate()
        outline = outline_of(episode.scene, self.object)
        self._grip = find_grip(outline, _closing_direction(episode), self._obstacles())
        self._height = max(outline.top - _FINGER_M, outline.bottom + _LOWEST_M)
        self._above = outline.top + _HOVER_M
        self._hang = self._height - outline.bottom  # of the object below the fingertips once it is held

    def _obstacles(self) -> list[Outline]:
        scene = self.episode.scene
        return [outline_of(scene, name) for name in scene.env.objects_dict if name != self.object]

    def act(self) -> np.ndarray:
        """The next control step, float64 [7]."""
        self.episode.activate()
        target, gripper = self._plan()
        data, robot = self.episode.scene.data, self.episode.scene.robot
        moved = (target - data.site_xpos[robot.eef_site_id]) * _GAIN / _METRES
        turned = self._turn() * _GAIN / _RADIANS
        return np.clip(np.concatenate([moved, turned, [gripper]]), -1, 1)

    def _plan(self) -> tuple[np.ndarray, float]:
        """Where the fingertips go, and the gripper's action; moves on to the next phase where they have arrived."""
        hand = self._hand()
        x, y = self._grip.place
        over, at = np.array([x, y, self._above]), np.array([x, y, self._height])
        if self._phase == "hover":
            if _near(hand, over, _CLOSE_M) and np.abs(self._turn()).max() < 0.05:
                self._phase = "lower"
            return over, OPEN
        if self._phase == "lower":
            if _near(hand, at, _CLOSE_M / 2) or self._wait(40):
                self._next("grip")
            return at, OPEN
        if self._phase == "grip":
            if self._wait(_GRIP_STEPS):
                self._next("lift")
            return at, -OPEN
        return self._carry(hand)

    def _carry(self, hand: np.ndarray) -> tuple[np.ndarray, float]:
        goal = outline_of(self.episode.scene, self.goal) if self.goal else None
        place = self._goal_place()
        rim = goal.top if goal is not None else place[2]
        high = rim + self._hang + _CLEARANCE_M
        if self._phase == "lift":
            if hand[2] > high - _CLOSE_M or self._wait(60):
                self._next("carry" if self._holds() else "hover")
                if self._phase == "hover":
                    self._begin()
            return np.array([*self._grip.place, high]), -OPEN
        if self._phase == "carry":
            if not self._holds():
                self._begin()
            elif _near(hand, np.array([*place[:2], high]), _CLOSE_M):
                self._next("drop")
            return np.array([*place[:2], high]), -OPEN
        low = rim + self._hang + 0.005
        if self._phase == "drop":
            if hand[2] < low + _CLOSE_M or self._wait(30):
                self._next("release")
            return np.array([*place[:2], low]), -OPEN
        if self._wait(_RELEASE_STEPS):
            if self._waited > 40:
                self._begin()
            return np.array([*place[:2], high]), OPEN
        return np.array([*place[:2], low]), OPEN

    def _holds(self) -> bool:
        """Whether the object is between the fingers."""
        return bool(np.linalg.norm(_body_place(self.episode, self.object) - self._hand()) < 0.12)

    def _hand(self) -> np.ndarray:
        scene = self.episode.scene
        return np.array(scene.data.site_xpos[scene.robot.eef_site_id])

    def _turn(self) -> np.ndarray:
        """Axis times angle that turns the hand downwards and its fingers to the grip."""
        scene = self.episode.scene
        down = np.array(scene.data.site_xmat[scene.robot.eef_site_id]).reshape(3, 3)[:, 2]
        tilt = np.cross(down, [0, 0, -1])
        closing = _closing_direction(self.episode)
        direction = np.array([np.cos(self._grip.angle), np.sin(self._grip.angle)])
        direction = direction if closing @ direction >= 0 else -direction
        yaw = np.arctan2(closing[0] * direction[1] - closing[1] * direction[0], closing @ direction)
        return tilt + np.array([0, 0, yaw])

    def _goal_place(self) -> np.ndarray:
        return _body_place(self.episode, self.goal)

    def _next(self, phase: str) -> None:
        self._phase, self._waited = phase, 0

    def _wait(self, steps: int) -> bool:
        """Whether this phase has lasted so many control steps."""
        self._waited += 1
        return self._waited > steps


def _read_goal(episode: EpisodeState) -> tuple[str, str]:
    """The object of the goal, and the body that it goes into or onto."""
    env = episode.scene.env
    goals = [list(goal) for goal in env.parsed_problem["goal_state"]]
    if len(goals) == 1 and goals[0][0].lower() in _GOALS and goals[0][1] in env.objects_dict:
        region = goals[0][2]
        target = region
        if region in env.object_sites_dict:
            target = env.object_sites_dict[region].parent_name
        if target in env.objects_dict:
            return goals[0][1], target
    raise ValueError(
        f"LIBERO's expert puts one object into or onto another; the goal of {episode.scene.files.name!r} is {goals}"
    )


def _body_place(episode: EpisodeState, name: str) -> np.ndarray:
    return np.array(episode.scene.data.xpos[episode.scene.env.obj_body_id[name]])


def _closing_direction(episode: EpisodeState) -> np.ndarray:
    """Horizontal unit vector [2] from one finger to the other."""
    data = episode.scene.data
    way = (data.body("gripper0_rightfinger").xpos - data.body("gripper0_leftfinger").xpos)[:2]
    return way / np.linalg.norm(way)


def _near(place: np.ndarray, target: np.ndarray, metres: float) -> bool:
    return bool(np.linalg.norm(place - target) < metres)
