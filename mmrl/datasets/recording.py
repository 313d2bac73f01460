"""Record episodes of a simulator, one control step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.episode_limit import check_end
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Request, Sampling, Sim
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.engines.base import Engine

MAX_ENVS = 64  # environments, and therefore episodes in memory
MAX_STEPS = 50_000  # control steps of an episode

Rows = list[dict[str, Any]]
"""The raw observation of every environment."""

Actor = Callable[[Any, Rows, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""(environments, observations, which of them run [n], control step) -> (recorded, executed) actions [n, A]."""


@dataclass(frozen=True)
class RecordedBatch:
    """Episodes to write, and the number of episodes with simulator errors."""

    episodes: list[OfflineEpisode]
    errors: int


class ExpertActor:
    """Actor that runs the simulator's scripted expert, with normal noise on executed but not on recorded actions.

    Args:
        sim: simulator with a scripted expert: `expert(env)` returns actions float32 [n, chunk, A].
        seeds: seeds of the episodes, from which the noise is derived.
        noise: standard deviation in units of the action.
    """

    def __init__(self, sim: Sim, seeds: Sequence[int], noise: float):
        self.script, self.noise = sim.expert, noise  # type: ignore[attr-defined]
        self.rngs = [derive_rng("recording", seed) for seed in seeds]

    def __call__(self, env: Any, rows: Rows, live: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        actions = np.asarray(self.script(env), np.float32)[:, 0]
        shape = actions.shape[1:]
        shaken = np.stack([rng.standard_normal(shape) for rng in self.rngs])
        return actions, (actions + self.noise * shaken).astype(np.float32) if self.noise else actions


class PolicyActor:
    """Actor that runs a policy, one inference per chunk.

    Args:
        engine: engine with the weights of the policy.
        sampling: sampling settings.
        seeds: seeds of the episodes, from which the draws are derived.
    """

    def __init__(self, engine: Engine, sampling: Sampling, seeds: Sequence[int]):
        self.engine, self.sampling, self.seeds = engine, sampling, seeds
        self._chunks: dict[int, np.ndarray] = {}
        self._next = 0

    def __call__(self, env: Any, rows: Rows, live: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        env_ids = np.flatnonzero(live).tolist()
        if step == self._next:
            requests = [Request(rows[i], derive_seed("recording", self.seeds[i], step)) for i in env_ids]
            chunked = len(env.single_action_space.shape) == 2
            for i, done in zip(env_ids, self.engine.sample(requests, self.sampling)):
                output = np.asarray(done.output)
                self._chunks[i] = output if chunked else output[None]
            self._next = step + len(self._chunks[env_ids[0]])
        remaining = self._next - step
        shape = self._chunks[env_ids[0]].shape[1:]
        actions = np.zeros((len(rows), *shape), self._chunks[env_ids[0]].dtype)
        for i in env_ids:
            actions[i] = self._chunks[i][-remaining]
        return actions, actions


def record(
    sim: Sim, seeds: Sequence[int], make_actor: Callable[[Sequence[int]], Actor], most: int = MAX_STEPS
) -> Iterator[RecordedBatch]:
    """Record one episode per seed; yields batches of at most MAX_ENVS episodes.

    Args:
        sim: simulator with one control step per decision (`Sim.stepwise`).
        seeds: seed of the initial state of each episode.
        make_actor: builds the actor for the seeds of a batch.
        most: control steps of an episode, after which the recording stops with an error.
    """
    for start in range(0, len(seeds), MAX_ENVS):
        some = list(seeds[start : start + MAX_ENVS])
        env = sim.make(len(some))
        try:
            yield _play(env, some, make_actor(some), sim.name, most)
        finally:
            env.close()


def check_stepwise(env: Any) -> None:
    """Refuse environments that play several control steps per decision."""
    shape = env.single_action_space.shape
    if len(shape) == 2 and shape[0] != 1:
        raise ValueError(
            f"a recording needs one control step per decision, {env} plays {shape[0]}: set sim.chunk=1, or give the "
            "simulator's class the method stepwise()"
        )


def _play(env: Any, seeds: Sequence[int], actor: Actor, name: str, most: int) -> RecordedBatch:
    check_stepwise(env)
    observation, _ = env.reset(seed=list(seeds))
    count, space = len(seeds), env.action_space
    steps_of: list[list[tuple[dict[str, Any], np.ndarray, np.ndarray, float]]] = [[] for _ in seeds]
    over: list[tuple[bool, bool, bool, dict[str, float]] | None] = [None] * count
    live, step = np.ones(count, bool), 0
    while live.any():
        rows = [_row(observation, i) for i in range(count)]
        actions, played = actor(env, rows, live, step)
        observation, rewards, terminated, truncated, infos = env.step(played.reshape(space.shape).astype(space.dtype))
        errors = np.asarray(infos.get("error", np.zeros(count, bool)), bool)
        for i in np.flatnonzero(live):
            steps_of[i].append((rows[i], actions[i], played[i], float(rewards[i])))
            if terminated[i] or truncated[i]:
                scores = {n: float(c[i]) for n, c in infos.get("scores", {}).items() if not n.startswith("_")}
                over[i] = (bool(terminated[i]), bool(truncated[i]), bool(errors[i]), scores)
                live[i] = False
        step += 1
        if live.any():
            check_end(name, step, int(live.sum()), most, "the limit of a recording")
    ends = [end for end in over if end is not None]
    whole = [build_episode(seed, steps, end) for seed, steps, end in zip(seeds, steps_of, ends) if not end[2]]
    return RecordedBatch(whole, errors=sum(end[2] for end in ends))


def _row(observation: Any, i: int) -> dict[str, Any]:
    if isinstance(observation, dict):
        return {name: rows[i] for name, rows in observation.items()}
    return {"state": observation[i]}


def build_episode(seed: int, steps: list, end: tuple[bool, bool, bool, dict[str, float]]) -> OfflineEpisode:
    """Stack the control steps of an episode.

    Args:
        seed: of the initial state.
        steps: (observation, recorded action, executed action, reward), one for each control step.
        end: terminated, truncated, whether the simulator failed, and the scores, of which "success" is stored.
    """
    observations, actions, played, rewards = zip(*steps)
    terminated, truncated, _, scores = end
    names = [name for name, value in observations[0].items() if not isinstance(value, str)]
    instruction = next((value for value in observations[0].values() if isinstance(value, str)), "")
    action_rows, executed_rows = (np.stack(rows).reshape(len(steps), -1) for rows in (actions, played))
    return OfflineEpisode(
        actions=action_rows,
        observations={name: _to_float_rows(np.stack([row[name] for row in observations])) for name in names},
        instruction=instruction,
        rewards=np.asarray(rewards, np.float32),
        terminated=terminated,
        truncated=truncated,
        success=bool(scores["success"]) if "success" in scores else None,
        seed=seed,
        executed=None if action_rows is executed_rows or np.array_equal(action_rows, executed_rows) else executed_rows,
        where=f"the episode of seed {seed}",
        info={"scores": scores},
    )


def _to_float_rows(rows: np.ndarray) -> np.ndarray:
    """Convert float64 to float32 and [T] to [T, 1]."""
    rows = rows.astype(np.float32) if rows.dtype == np.float64 else rows
    return rows[:, None] if rows.ndim == 1 else rows
