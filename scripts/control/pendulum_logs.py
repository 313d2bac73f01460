"""Logs of our own SAC on Pendulum, in D4RL's shape: scripts/control/pendulum_logs.py build/offline/pendulum

`medium_replay` is the replay buffer of SAC after its first iterations, `medium` has episodes of the policy of that
time, and `expert` those of the policy at the end of training. `anchors.json` has the mean return of uniform actions and
that of the expert's greedy ones, which are the scores 0 and 100. All follow from the seed; logs that are there stay.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise, derive_seed
from mmrl.core.sampling import Sampling
from mmrl.data.replay_buffer import FINAL, TRUNCATED, ReplayBuffer
from mmrl.datasets.extras import hdf5
from mmrl.policies.control.actor import ActorPolicy
from mmrl.policies.control.uniform import UniformPolicy
from sims.gym import GymSim

LOGS = ("medium_replay", "medium", "expert")
MEDIUM, EXPERT = 40, 157
"""Iterations of SAC, of 64 decisions each, until the policy is medium and expert."""
STEPS = 200
"""Of an episode, which never ends before."""
SIM = GymSim("Pendulum-v1")
Columns = dict[str, np.ndarray]


def train(iterations: int, seed: int, folder: Path) -> tuple[ActorPolicy, ReplayBuffer]:
    """Train SAC; returns its policy and its replay buffer."""
    lengths = [f"trainer.max_epochs={iterations}", f"trainer.check_val_every_n_epoch={iterations}"]
    quiet = ["trainer.logger=false", "trainer.callbacks.progress=null", "data.evaluation=null"]
    cli = CLI(to_lightning(compose(["recipe=sac", f"seed={seed}", *lengths, *quiet, f"run_dir='{folder}'"])))
    cli.fit()
    return cli.model.policy, cli.datamodule.replay


def read_replay(replay: ReplayBuffer, policy: ActorPolicy) -> Columns:
    """Flat arrays of the transitions of a replay buffer that has not overwritten any; segments end as time limits.

    Args:
        replay: whose episodes do not terminate.
        policy: whose choices it stores.
    """
    size, columns = replay.storage.size, replay.storage.columns
    rows = torch.nonzero(columns["end"][:size] != FINAL)[:, 0]
    share = (policy.to_action(columns["action"][rows, 0]) + 1) / 2
    states = columns["obs.state"]
    return {
        "observations": states[rows].numpy(),
        "actions": torch.lerp(policy.low, policy.high, share).numpy(),
        "rewards": columns["reward"][rows].numpy(),
        "terminals": np.zeros(len(rows), bool),
        "timeouts": (columns["end"][rows] == TRUNCATED).numpy(),
        "next_observations": states[rows + 1].numpy(),
    }


def play(policy: Any, episodes: int, seed: int, sampling: Sampling) -> Columns:
    """Flat arrays of episodes of a policy, one after the other.

    Args:
        policy: acts on state vectors.
        episodes: that are played at a time.
        seed: of initial states and draws.
        sampling: how actions are chosen.
    """
    seeds = [derive_seed("pendulum_logs", seed, i) for i in range(episodes)]
    env, noise = SIM.make(episodes), Noise(seeds)
    state, _ = env.reset(seed=[each % 2**32 for each in seeds])
    steps: list[tuple[np.ndarray, ...]] = []
    over = np.zeros(episodes, bool)
    while not over.all():
        output = policy.act(policy.encode_batch({"state": state}), sampling, noise).output
        actions = np.stack(output).astype(np.float32)
        following, rewards, terminated, truncated, _ = env.step(actions)
        steps.append((state.copy(), actions, rewards, terminated, truncated, following.copy()))
        state, over = following, terminated | truncated
    env.close()
    names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    arrays = [np.stack(column, axis=1) for column in zip(*steps)]  # [episodes, T, ...]
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in zip(names, arrays)}


def mean_return(columns: Columns) -> float:
    """Mean undiscounted return of an episode of flat arrays, whose segments may be parts of one."""
    return float(columns["rewards"].mean() * STEPS)


def write(path: Path, columns: Columns) -> None:
    """Write flat arrays to an HDF5 file, as float32 or flags."""
    beside = path.with_suffix(".part")
    with hdf5().File(beside, "w") as file:
        for name, rows in columns.items():
            file[name] = rows if rows.dtype == bool else rows.astype(np.float32)
    beside.replace(path)


def record_logs(folder: Path, seed: int = 0, medium: int = MEDIUM, expert: int = EXPERT, episodes: int = 50) -> Path:
    """Record what is missing of the logs and of their anchors; returns the file of the anchors.

    Args:
        folder: of the logs.
        seed: of SAC, initial states and draws.
        medium: iterations until the policy is medium.
        expert: iterations until the end.
        episodes: of `medium` and `expert` each.
    """
    anchors = folder / "anchors.json"
    asked = {"seed": seed, "medium": medium, "expert": expert, "episodes": episodes}
    if anchors.exists() and json.loads(anchors.read_text())["asked"] == asked:
        return anchors
    folder.mkdir(parents=True, exist_ok=True)
    policy, replay = train(medium, seed, folder / "sac_medium")
    logs = {"medium_replay": read_replay(replay, policy), "medium": play(policy, episodes, seed, Sampling())}
    policy, _ = train(expert, seed, folder / "sac_expert")
    logs["expert"] = play(policy, episodes, seed, Sampling())
    for name in LOGS:
        write(folder / f"{name}.hdf5", logs[name])
    returns = {name: mean_return(columns) for name, columns in logs.items()}
    random = mean_return(play(_Uniform(policy), episodes, seed + 1, Sampling()))
    greedy = mean_return(play(policy, episodes, seed + 1, Sampling(decode="argmax")))
    numbers = {"asked": asked, "random": random, "expert": greedy, "returns": returns}
    anchors.write_text(json.dumps(numbers, indent=2) + "\n")
    return anchors


class _Uniform(UniformPolicy):
    """Uniform actions on batches of state vectors."""

    def encode_batch(self, raw: Any) -> dict[str, torch.Tensor]:
        return self.actor.encode_batch(raw)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of SAC and of the logs")
    options = parser.parse_args()
    print(record_logs(options.folder, options.seed).read_text())
