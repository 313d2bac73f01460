"""Demonstrations of a simulator's scripted expert, in chunks that begin at every control step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Sim

Demo = list[tuple[dict[str, Any], np.ndarray]]
"""One episode: (raw observation, the expert's next actions float32 [chunk, A]) of every control step."""

TRIES = 5  # per seed
MOST_STEPS = 50_000  # control steps of an episode
_AT_ONCE = 48  # environments
_NOISE_STEP = 0.1  # in actions, added at each further try


def demonstrate(sim: Sim, seeds: Sequence[int], chunk: int, noise: float) -> list[Demo]:
    """Play the expert from the initial states of `seeds`; the last actions of an episode are repeated to fill chunks.

    A state from which it fails is played again with more noise.

    Args:
        sim: with `expert(env)`, one control step per decision, and the score "success".
        seeds: of the initial states.
        chunk: control steps of a demonstrated chunk.
        noise: standard deviation of what is added to executed, not to demonstrated actions, in actions.

    Raises:
        RuntimeError: the expert failed from a state at every try.
    """
    demos: dict[int, Demo] = {}
    for attempt in range(TRIES):
        rest = [seed for seed in dict.fromkeys(seeds) if seed not in demos]
        for start in range(0, len(rest), _AT_ONCE):
            demos |= _play(sim, rest[start : start + _AT_ONCE], chunk, noise + _NOISE_STEP * attempt)
    if failed := [seed for seed in seeds if seed not in demos]:
        raise RuntimeError(f"{sim.name}: the expert failed from {len(failed)} states; the first has seed {failed[0]}")
    return [demos[seed] for seed in seeds]


def _play(sim: Any, seeds: Sequence[int], chunk: int, noise: float) -> dict[int, Demo]:
    """The successful episodes, by seed."""
    env = sim.make(len(seeds))
    observation, _ = env.reset(seed=list(seeds))
    rngs = [derive_rng("demonstration", seed) for seed in seeds]
    observations: list[list[dict[str, Any]]] = [[] for _ in seeds]
    action_lists: list[list[np.ndarray]] = [[] for _ in seeds]
    live, success = np.ones(len(seeds), bool), np.zeros(len(seeds), bool)
    while live.any():
        actions = np.asarray(sim.expert(env), np.float32)  # [n, 1, A]
        executed = actions.copy()
        for i in np.flatnonzero(live):
            observations[i].append({name: rows[i] for name, rows in observation.items()})
            action_lists[i].append(actions[i, 0])
            executed[i] += noise * rngs[i].standard_normal(actions[i].shape).astype(np.float32)
        observation, _, terminated, truncated, infos = env.step(executed)
        over = live & (terminated | truncated)
        scores = infos.get("scores") or {}  # where every simulator failed there are none
        success[over] = scores["success"][over] > 0 if "success" in scores else False
        live &= ~over
        if live.any() and len(action_lists[np.flatnonzero(live)[0]]) >= MOST_STEPS:
            raise RuntimeError(
                f"{sim.name}: a demonstration has not ended after {MOST_STEPS} control steps; limit it with "
                "sim.max_episode_steps=1000, or let the environment end it"
            )
    env.close()
    return {seeds[i]: _cut(observations[i], np.stack(action_lists[i]), chunk) for i in np.flatnonzero(success)}


def _cut(seen: Sequence[dict[str, Any]], actions: np.ndarray, chunk: int) -> Demo:
    last = len(actions) - 1
    return [(raw, actions[np.minimum(np.arange(t, t + chunk), last)]) for t, raw in enumerate(seen)]
