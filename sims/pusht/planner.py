"""Model-predictive planning of PushT's next stroke: a table proposes strokes, a copy of the physics tries them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sims.pusht.paths import find_path, walk
from sims.pusht.physics import PhysicsCopy, PushTState, read_state
from sims.pusht.poses import measure_error, move, to_global, to_local, to_pose
from sims.pusht.sizes import HALF
from sims.pusht.strokes import PACE, PAUSE, PUSH_PACE, SETTLE, build_table, locate_strokes

_FIRST = 300  # strokes of the table after which a second one is considered
_TRIED = 12  # of them in the physics
_ROUNDS, _SAMPLES, _ELITES = 3, 16, 4  # of the cross-entropy method
_STD = np.array([8.0, 0.15, 5.0])  # of its first round: px, rad, px
_STEEPEST, _SHORTEST = 1.0, 1.0  # rad, px
_NEAR, _SAFETY = 5.0, 0.002  # px from which coverage is measured; above the package's threshold
_WALL, _ROOM = 6.0, 60.0  # px from the walls that the pusher and the block's centre of gravity keep


class Plan(NamedTuple):
    """A stroke with the way to its start.

    Attributes:
        cost: its control steps, and an estimate of those that follow.
        stroke: as of `locate_strokes`, [3].
        actions: of every control step, float32 [n, 2].
        states: predicted, before every control step and after the last, n + 1.
    """

    cost: float
    stroke: np.ndarray
    actions: np.ndarray
    states: list[PushTState]


def decode_action(action: np.ndarray) -> np.ndarray:
    """The pusher's target (px) of an action in [-1, 1]."""
    return HALF + HALF * np.asarray(action, np.float64)


def estimate_steps(error: np.ndarray) -> np.ndarray:
    """About the control steps until success from an error of the pose (px).

    Proportional to a large error, and to the logarithm of a small one, a part of which every stroke removes. It must
    not be too low: the planner then prefers to wait.
    """
    return 20 + 0.6 * error + 10 * np.log2(1 + error / 2)


class StrokePlanner:
    """Plans single strokes that lower the control steps until success.

    Args:
        env: an environment of the package, unwrapped, for the planner alone.
    """

    def __init__(self, env: Any):
        self.physics = PhysicsCopy(env)
        self.table = build_table(self.physics)
        self._goal, self._threshold = to_pose(env.goal_pose), env.success_threshold + _SAFETY

    def plan(self, state: PushTState, rng: np.random.Generator) -> Plan:
        """The best stroke of a cross-entropy method that starts from the table's proposals."""
        plans = [self.try_stroke(state, stroke) for stroke in self.propose(state)]
        for k in range(_ROUNDS):
            plans = sorted(plans, key=lambda plan: plan.cost)[:_ELITES]
            noise = _STD * 0.5**k * rng.standard_normal((_SAMPLES, 3))
            strokes = np.array([plan.stroke for plan in plans])[np.arange(_SAMPLES) % len(plans)] + noise
            strokes[:, 1] = np.clip(strokes[:, 1], -_STEEPEST, _STEEPEST)
            strokes[:, 2] = np.maximum(strokes[:, 2], _SHORTEST)
            plans += [self.try_stroke(state, stroke) for stroke in strokes]
        return min(plans, key=lambda plan: plan.cost)

    def propose(self, state: PushTState) -> np.ndarray:
        """Strokes of the table after which, or after a second one, the fewest control steps remain, [n, 3]."""
        table, pose = self.table, to_pose(state.block)
        ways = table.count_steps(to_local(state.pusher, pose))
        after, steps = move(pose, table.shifts), ways[table.which] + table.steps
        one = np.where(self._find_possible(pose, after), steps + self._estimate(after), np.inf)
        first = np.argsort(one)[:_FIRST]
        second = table.further[first][:, table.which] + table.steps + self._estimate(move(after[first], table.shifts))
        total = np.minimum(one[first], steps[first] + second.min(axis=1))
        ranked = first[np.argsort(total)]
        return table.strokes[_limit_repeats(ranked, table.which[ranked], 2)[:_TRIED]]

    def _estimate(self, poses: np.ndarray) -> np.ndarray:
        return estimate_steps(measure_error(poses, self._goal))

    def _find_possible(self, pose: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Which strokes of the table keep pusher and block off the walls, bool [m]."""
        side = 2 * HALF
        starts, ends = (to_global(places, pose) for places in (self.table.starts, self.table.ends))
        free = [((places > _WALL) & (places < side - _WALL)).all(axis=1) for places in (starts, ends)]
        room = ((after[:, :2] > _ROOM) & (after[:, :2] < side - _ROOM)).all(axis=1)
        return free[0][self.table.which] & free[1] & room

    def list_actions(self, state: PushTState, stroke: np.ndarray) -> np.ndarray:
        """Actions of the way to a stroke's start and of the stroke, float32 [n, 2]."""
        pose = to_pose(state.block)
        start, end = locate_strokes(stroke[None])
        way = walk(find_path(to_local(state.pusher, pose), start[0]), PACE)
        push = walk(np.concatenate([start, end]), PUSH_PACE)
        targets = np.concatenate([way, start.repeat(PAUSE, axis=0), push, end.repeat(SETTLE, axis=0)])
        return np.clip(to_global(targets, pose) / HALF - 1, -1, 1).astype(np.float32)

    def try_stroke(self, state: PushTState, stroke: np.ndarray) -> Plan:
        """Play a stroke in the physics, until success or to its end."""
        physics, actions, states = self.physics, self.list_actions(state, stroke), [state]
        physics.set_state(state)
        for target in decode_action(actions).tolist():
            physics.step(target)
            states.append(read_state(physics))
            if self._is_solved(states[-1]):
                count = len(states) - 1
                return Plan(count, stroke, actions[:count], states)
        return Plan(len(actions) + self.estimate_rest(states[-1]), stroke, actions, states)

    def _is_solved(self, state: PushTState) -> bool:
        """Whether the physics, which is in this state, is at the goal."""
        near = measure_error(to_pose(state.block), self._goal) < _NEAR
        return bool(near) and self.physics.measure_coverage() > self._threshold

    def estimate_rest(self, state: PushTState) -> float:
        """About the control steps until success: from here, or after the best stroke of the table."""
        table, pose = self.table, to_pose(state.block)
        ways = 1.2 * np.linalg.norm(table.starts - to_local(state.pusher, pose), axis=1) / PACE  # most are not straight
        after = move(pose, table.shifts)
        possible = self._find_possible(pose, after)
        rest = np.where(possible, ways[table.which] + table.steps + self._estimate(after), np.inf)
        return float(min(self._estimate(pose), rest.min()))


def _limit_repeats(items: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """The items in their order, of each group the first `count`."""
    counts: dict[int, int] = {}
    selected: list[int] = []
    for item, group in zip(items.tolist(), groups.tolist()):
        counts[group] = counts.get(group, 0) + 1
        if counts[group] <= count:
            selected.append(item)
    return np.array(selected, int)
