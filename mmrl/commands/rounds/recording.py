"""The process of a record stage: episodes of a simulator, one row per control step, behind those of earlier stages."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.callbacks.warm_start import load_policy
from mmrl.commands.cli import CLI
from mmrl.commands.rounds.words import QUIET, merge_words
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.rng import derive_seed
from mmrl.core.types import Request, Sampling
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.datasets.recording import Actor, ExpertActor, Rows, record
from mmrl.engines.base import Engine
from mmrl.files.atomic import replace_file, write_file
from mmrl.rollouts.base import simulator_of

RECORDING = "recording.json"
EPISODES, SUCCESSES = "episodes.npz", "successes.npz"
COUNTS = "counts.json"
_ARRAYS = ("observations", "actions", "rewards", "terminals", "timeouts")


@dataclass(frozen=True)
class RecordRequest:
    """What the process of a record stage is asked for.

    Args:
        words: overrides of `mmrl fit`.
        weights: checkpoint of the policy; None for the policy as it is configured.
        expert: the simulator's script acts.
        noise: standard deviation of the noise on the expert's actions, in units of the action.
        count: episodes.
        offset: index of the first training problem.
        seed: of the draws.
        adds: folders of earlier stages, whose episodes come first.
    """

    words: Sequence[str]
    weights: str | None
    expert: bool
    noise: float
    count: int
    offset: int
    seed: int
    adds: Sequence[str]


class ChunkActor:
    """Actor that plays a policy's chunks, one inference for each.

    Args:
        engine: with the weights of the policy.
        sampling: how actions are drawn.
        seeds: of the episodes, from which the draws are derived.
        execute: control steps of a chunk that are played; None for all.
    """

    def __init__(self, engine: Engine, sampling: Sampling, seeds: Sequence[int], execute: int | None = None):
        self.engine, self.sampling, self.seeds, self.execute = engine, sampling, seeds, execute
        self._chunks = np.zeros(0)  # [n, steps, A]
        self._begun = -1  # control step at which they began

    def __call__(self, env: Any, rows: Rows, live: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        if self._begun < 0 or step - self._begun >= self._chunks.shape[1]:
            numbers = np.flatnonzero(live).tolist()
            requests = [Request(rows[i], derive_seed("recorded", self.seeds[i], step)) for i in numbers]
            outputs = [np.asarray(done.output) for done in self.engine.sample(requests, self.sampling)]
            # [live, H, A], or [live, A] of a policy without chunks
            played = np.stack([each if each.ndim == 2 else each[None] for each in outputs])[:, : self.execute]
            self._chunks = np.zeros((len(rows), *played.shape[1:]), played.dtype)
            self._chunks[numbers], self._begun = played, step
        actions = self._chunks[:, step - self._begun]
        return actions, actions


def record_stage(folder: Path) -> None:
    """Write the episodes, those that succeeded, and their numbers of the stage whose request is in the folder."""
    request = RecordRequest(**json.loads((folder / RECORDING).read_text()))
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    cli = CLI(to_lightning(compose(merge_words(request.words, QUIET))), trains=False)
    task: Any = cli.datamodule.task.on("train")  # type: ignore[attr-defined]
    sim = simulator_of(task, "a record stage")
    if request.offset + request.count > len(task):
        raise ConfigError(f"task {task.name!r} has {len(task)} training problems; lower count or offset")
    seeds = [task[i].info["seed"] for i in range(request.offset, request.offset + request.count)]
    batches = record(sim.stepwise(), seeds, lambda some: _build_actor(cli, sim, request, some))
    episodes = [episode for batch in batches for episode in batch.episodes]
    if not episodes:
        raise ConfigError(f"task {task.name!r}: the simulator failed in all of {len(seeds)} episodes")
    added = [Path(place) for place in request.adds]
    successes = [episode for episode in episodes if is_success(episode)]
    merge_recordings(folder / EPISODES, [place / EPISODES for place in added], episodes)
    merge_recordings(folder / SUCCESSES, [place / SUCCESSES for place in added], successes)
    counts = {"rows": len(_read(folder / EPISODES)["rewards"]), "reward": len(successes) / len(episodes)}
    write_file(folder / COUNTS, json.dumps({**counts, "problems": len(episodes)}) + "\n")


def _build_actor(cli: CLI, sim: Any, request: RecordRequest, seeds: Sequence[int]) -> Actor:
    episode_seeds = [derive_seed(request.seed, seed) for seed in seeds]
    if request.expert:
        if not hasattr(sim.stepwise(), "expert"):
            raise ConfigError(f"sim {sim.name!r} has no scripted expert; record a policy with expert=false")
        return ExpertActor(sim.stepwise(), episode_seeds, request.noise)
    policy: Any = cli.model.policy
    if request.weights is not None:
        load_policy(policy, request.weights)
    engine = cli.datamodule.engine  # type: ignore[attr-defined]
    engine.sync(policy, 0)
    sampling = cli.datamodule.sampling  # type: ignore[attr-defined]
    return ChunkActor(engine, sampling, episode_seeds, getattr(sim, "played", None))


def is_success(episode: OfflineEpisode) -> bool:
    """Whether an episode succeeded; where the simulator does not say, whether it reached a terminal state."""
    return episode.terminated if episode.success is None else episode.success


def merge_recordings(path: Path, added: Sequence[Path], episodes: Sequence[OfflineEpisode]) -> None:
    """Write the episodes of earlier files and further ones, as D4RL's flat arrays in a .npz file.

    Actions are those that were executed. A file without an episode has arrays without rows.
    """
    parts = [_read(place) for place in added] + [_flatten(episode) for episode in episodes]
    arrays = {name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0) for name in _ARRAYS}
    with replace_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in _ARRAYS}


def _flatten(episode: OfflineEpisode) -> Mapping[str, np.ndarray]:
    if list(episode.observations) != ["state"]:
        raise ConfigError(
            f"{episode.where}: a record stage writes the observation 'state', and this simulator gives "
            f"{sorted(episode.observations)}; take one with a state vector, such as setting=push_states"
        )
    actions = episode.actions if episode.executed is None else np.clip(episode.executed, -1, 1)
    last = np.arange(len(episode)) == len(episode) - 1
    assert episode.rewards is not None
    return {
        "observations": episode.observations["state"].astype(np.float32),
        "actions": actions.astype(np.float32),
        "rewards": episode.rewards,
        "terminals": last & episode.terminated,
        "timeouts": last & (not episode.terminated),
    }
