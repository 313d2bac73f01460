"""One human demonstration: the poses of an object and of the hand that moves it, scripted or from a file."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mmrl.core.errors import check_positive
from sims.tabletop.scene import CONTROL_HZ
from sims.tabletop.things import CUBE_HALF_M

FINGER_M = 0.014  # half the width of the closed fingers
CLEARANCE_M = 0.03  # between hand and object in the first frame
HAND_HEIGHT_M = 0.03


@dataclass(frozen=True)
class Demonstration:
    """Poses of an object and of a hand at the control rate; the first frame is the last one before they move."""

    object_m: np.ndarray  # [T, 3] centres of the object, metres
    yaw: np.ndarray  # [T] its turn about the vertical, rad
    hand_m: np.ndarray  # [T, 3] the point of the hand that the robot's fingertips take over, metres

    @property
    def pre_contact_m(self) -> np.ndarray:
        """Hand relative to the object in the first frame, in the object's axes, [3] metres."""
        offset, turn = self.hand_m[0] - self.object_m[0], -self.yaw[0]
        return turn_offset(offset, turn)


class HumanDemonstration(ABC):
    """Where a demonstration comes from."""

    @abstractmethod
    def read(self) -> Demonstration:
        """The demonstration at the control rate."""


@dataclass(frozen=True)
class ScriptedHuman(HumanDemonstration):
    """A hand that pushes a cube along a curve, with the errors of a pose estimate.

    The curve is a quadratic Bezier curve, played at constant speed; the cube turns with its tangent. The hand closes
    the gap to the cube, stays behind it, and both wait at the end.

    Args:
        start_m: where the cube stands at first, x and y in metres.
        goal_m: where it arrives.
        bend_m: how far the curve's control point lies to the left of the straight line's middle.
        speed_m_s: of the cube, metres a second.
        hold_s: how long both wait at the end, seconds.
        error_m: std of the estimated positions, metres; the errors are the same in every run.
    """

    start_m: tuple[float, float] = (0.42, -0.12)
    goal_m: tuple[float, float] = (0.54, 0.08)
    bend_m: float = 0.02
    speed_m_s: float = 0.12
    hold_s: float = 0.5
    error_m: float = 0.001

    def __post_init__(self) -> None:
        check_positive("sim.demonstration", speed_m_s=self.speed_m_s)
        if min(self.hold_s, self.error_m) < 0 or math.dist(self.start_m, self.goal_m) < 0.02:
            raise ValueError(
                "sim.demonstration: hold_s and error_m must be at least 0 and start_m and goal_m 2 cm apart, got "
                f"{self.hold_s}, {self.error_m}, {list(self.start_m)} and {list(self.goal_m)}"
            )

    def read(self) -> Demonstration:
        way, heading = self._sample_curve()
        steps = round(CLEARANCE_M / self.speed_m_s * CONTROL_HZ)
        direction = np.column_stack([np.cos(heading), np.sin(heading)])
        behind = way - (CUBE_HALF_M + FINGER_M) * direction
        closing = behind[0] - np.linspace(CLEARANCE_M, 0, steps + 1)[:-1, None] * direction[0]
        waits = np.zeros(round(self.hold_s * CONTROL_HZ), int) - 1  # indices of the last pose
        hand = np.concatenate([closing, behind, behind[waits]])
        path = np.concatenate([way[[0] * steps], way, way[waits]])
        yaw = np.concatenate([heading[[0] * steps], heading, heading[waits]]) - heading[0]
        rng = np.random.default_rng(0)
        path = path + self.error_m * rng.standard_normal(path.shape)
        return Demonstration(
            np.column_stack([path, np.full(len(path), CUBE_HALF_M)]),
            yaw,
            np.column_stack([hand, np.full(len(hand), HAND_HEIGHT_M)]),
        )

    def _sample_curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Points of the curve a control step apart, [n, 2] metres, and the directions of its tangent, [n] rad."""
        start, goal = np.array(self.start_m), np.array(self.goal_m)
        left = np.array([-(goal - start)[1], (goal - start)[0]]) / np.linalg.norm(goal - start)
        control = (start + goal) / 2 + self.bend_m * left
        t = np.linspace(0, 1, 1001)[:, None]
        curve = (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * goal
        tangent = 2 * (1 - t) * (control - start) + 2 * t * (goal - control)
        length = np.concatenate([[0], np.linalg.norm(np.diff(curve, axis=0), axis=1).cumsum()])
        count = max(round(length[-1] / self.speed_m_s * CONTROL_HZ), 1)
        at = np.interp(np.linspace(0, length[-1], count + 1), length, np.arange(len(length)))
        index = at.round().astype(int)
        return curve[index], np.unwrap(np.arctan2(tangent[:, 1], tangent[:, 0]))[index]


SCRIPT = ScriptedHuman()


@dataclass(frozen=True)
class DemonstrationFile(HumanDemonstration):
    """A demonstration in a JSON file, of any frame rate.

    {"hz": 30, "object": [[x, y, z, yaw], ...], "hand": [[x, y, z], ...]}

    Lengths are metres in the frame of the robot's base, yaw is rad; the first frame is the last one before the hand
    touches the object.

    Args:
        path: of the file.
    """

    path: str

    def read(self) -> Demonstration:
        """The demonstration at the control rate.

        Raises:
            ValueError: what is wrong with the file, and in which key.
        """
        hz, frames, hand = self._content
        seconds = np.arange(len(frames)) / hz
        times = np.arange(math.floor(seconds[-1] * CONTROL_HZ + 1e-9) + 1) / CONTROL_HZ
        frames = np.column_stack([frames[:, :3], np.unwrap(frames[:, 3])])
        poses, hands = (
            np.column_stack([np.interp(times, seconds, column) for column in table.T]) for table in (frames, hand)
        )
        return Demonstration(poses[:, :3], poses[:, 3], hands)

    @cached_property
    def _content(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Frames a second, the object's poses [T, 4] and the hand's places [T, 3]."""
        form = '{"hz": 30, "object": [[x, y, z, yaw], ...], "hand": [[x, y, z], ...]}'
        try:
            content = json.loads(Path(self.path).read_text(encoding="utf-8"))
            hz = float(content["hz"])
            frames, hand = (np.asarray(content[name], np.float64) for name in ("object", "hand"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"sim.demonstration.path={self.path} cannot be read ({type(error).__name__}: {error}); write {form}"
            ) from error
        shapes = (frames.shape, hand.shape)
        if frames.ndim != 2 or len(frames) < 2 or shapes != ((len(frames), 4), (len(frames), 3)):
            raise ValueError(
                f"{self.path}: object and hand must have a row a frame, at least two, of 4 and 3 numbers; got shapes "
                f"{list(shapes[0])} and {list(shapes[1])}; write {form}"
            )
        if not (hz > 0 and math.isfinite(hz)):
            raise ValueError(f"{self.path}: hz must be a number of frames a second above 0, got {hz}")
        for name, table in (("object", frames), ("hand", hand)):
            if (broken := np.flatnonzero(~np.isfinite(table).all(1))).size:
                raise ValueError(
                    f"{self.path}: {name}, frame {broken[0]}: numbers must be finite; interpolate or cut it"
                )
        return hz, frames, hand


def turn_offset(offset: np.ndarray, yaw: float) -> np.ndarray:
    """Turn an offset [3] about the vertical by yaw, rad."""
    x, y, z = offset
    return np.array([x * math.cos(yaw) - y * math.sin(yaw), x * math.sin(yaw) + y * math.cos(yaw), z])
