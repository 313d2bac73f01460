"""Train CORL's IQL, CQL, TD3+BC and AWAC on the logs of scripts/control/measure_offline.py, and compare the scores:

    git clone https://github.com/tinkoff-ai/CORL
    python scripts/control/measure_offline.py
    python scripts/control/measure_offline.py --methods AWAC --name pendulum_deep --overrides \\
        "policy.hidden=[256,256,256]" "model.models.critic.hidden=[256,256,256]" policy.normalize_observations=true
    python scripts/peers/corl_offline.py CORL

Each of CORL's single files runs as it is, with the defaults of its file but for SETTINGS below. It imports gym, D4RL,
pyrallis and W&B, and stand-ins take their places: Pendulum of gymnasium with actions between -1 and 1, the log's
columns, and a logger that keeps the normalised score. Logs, seeds, updates, batches and held-out episodes are as many
as ours. docs/results/offline/pendulum_corl.json has the score of every run, and the table is printed; what is stored is
not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.datasets.extras import hdf5  # noqa: E402
from mmrl.evaluation.statistics.intervals import student_interval  # noqa: E402
from mmrl.experiments.runner import describe_machine  # noqa: E402
from scripts.control.measure_offline import normalise  # noqa: E402
from scripts.control.pendulum_logs import LOGS  # noqa: E402

UPDATES, EPISODES = 2000, 64
"""Of each run, on batches of 256 transitions; held-out episodes after the last update."""
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    # a cosine of the learning rate over so many updates is flat
    "IQL": ("iql", {"max_timesteps": 10**9, "eval_freq": UPDATES, "n_episodes": EPISODES, "normalize": False}),
    "CQL": (
        "cql",
        {
            "max_timesteps": UPDATES,
            "eval_freq": UPDATES,
            "n_episodes": EPISODES,
            "normalize": False,
            "cql_alpha": 5.0,
            "policy_lr": 1e-4,
            "q_n_hidden_layers": 2,
        },
    ),
    "TD3+BC": ("td3_bc", {"max_timesteps": UPDATES, "eval_freq": UPDATES, "n_episodes": EPISODES}),
    "AWAC": ("awac", {"num_train_ops": UPDATES, "eval_frequency": UPDATES, "n_test_episodes": EPISODES}),
}
"""By method: the file of CORL's algorithms/offline, and what is set as in our recipe."""
OURS = {"AWAC": "pendulum_deep"}
"""By method: name of our result where its networks are set as CORL's, "pendulum" for the others."""
Scores = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Normalised scores by log, method and seed."""


class GymPendulum:
    """Pendulum with the interface of gym before 0.26: one value from `reset`, four from `step`.

    Args:
        log: columns of the log in D4RL's shape, actions between the environment's bounds.
        anchors: returns of uniform actions (`random`) and of the expert.
    """

    def __init__(self, log: Mapping[str, np.ndarray], anchors: Mapping[str, float]) -> None:
        self.env = gymnasium.make("Pendulum-v1")
        self.observation_space = self.env.observation_space
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, self.env.action_space.shape, np.float32)
        self.log, self.anchors = log, anchors
        self.transform: Callable[[np.ndarray], np.ndarray] = lambda state: state
        self.next_seed: int | None = None

    def seed(self, seed: int) -> None:
        """Seed the initial states from the next reset on."""
        self.next_seed = seed

    def reset(self) -> np.ndarray:
        state, _ = self.env.reset(seed=self.next_seed)
        self.next_seed = None
        return self.transform(state)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        torque = np.clip(action, -1, 1) * self.env.action_space.high
        state, reward, terminated, truncated, info = self.env.step(torque)
        return self.transform(state), float(reward), terminated or truncated, info

    def get_normalized_score(self, value: Any) -> Any:
        """0 at the return of uniform actions, 1 at the expert's."""
        return normalise(value, self.anchors) / 100

    def read_dataset(self) -> dict[str, np.ndarray]:
        """Columns of the log, with actions between -1 and 1."""
        rows = {name: column.copy() for name, column in self.log.items()}
        return rows | {"actions": rows["actions"] / self.env.action_space.high}


def transform_observation(env: GymPendulum, transform: Callable[[np.ndarray], np.ndarray]) -> GymPendulum:
    """In place of gym.wrappers.TransformObservation."""
    env.transform = transform
    return env


def make_module(name: str, **members: Any) -> ModuleType:
    """Module with the given members, which stands in for one that is not installed."""
    module = ModuleType(name)
    module.__dict__.update(members)
    return module


class _EndError(Exception):
    """A run has its score."""

    def __init__(self, score: float):
        super().__init__(score)
        self.score = score


def run_corl(folder: Path, method: str, env: GymPendulum, seed: int) -> float:
    """Train one of CORL's files; returns its first normalised score, after UPDATES updates.

    Args:
        folder: clone of CORL.
        method: key of SETTINGS.
        env: with the log to learn from.
        seed: of networks, batches and initial states.
    """
    file, settings = SETTINGS[method]

    def log(values: Mapping[str, float], step: int) -> None:
        if "d4rl_normalized_score" in values:
            raise _EndError(float(values["d4rl_normalized_score"]))

    def no_effect(*args: Any, **words: Any) -> None:
        """In place of what writes to a server."""

    wrappers = SimpleNamespace(TransformObservation=transform_observation)
    stand_ins = {
        "d4rl": make_module("d4rl", qlearning_dataset=lambda env: env.read_dataset()),
        "gym": make_module("gym", Env=GymPendulum, make=lambda name: env, wrappers=wrappers),
        "pyrallis": make_module("pyrallis", wrap=lambda: lambda train: train),
        "wandb": make_module("wandb", init=no_effect, log=log, finish=no_effect, run=SimpleNamespace(save=no_effect)),
    }
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        spec = importlib.util.spec_from_file_location(f"corl_{file}", folder / "algorithms" / "offline" / f"{file}.py")
        corl = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = corl  # its dataclasses look there
        spec.loader.exec_module(corl)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            corl.train(corl.TrainConfig(device="cpu", seed=seed, **settings))
    except _EndError as end:
        return end.score
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    raise SystemExit(f"{method}: CORL's {file}.py ended without a score")


def format_cell(values: list[float]) -> str:
    """Mean with Student's 95 % interval over the seeds."""
    low, high = student_interval(values)
    return f"{mean(values):.0f} [{low:.0f}, {high:.0f}]"


def read_ours(folder: Path) -> Scores:
    """Our scores of all methods of OURS and of the others."""
    files = {name: json.loads((folder / f"{name}.json").read_text())["scores"] for name in ("pendulum", *OURS.values())}
    methods = {method: OURS.get(method, "pendulum") for method in SETTINGS}
    return {log: {method: files[file][log].get(method, {}) for method, file in methods.items()} for log in LOGS}


def format_scores(ours: Scores, theirs: Scores) -> str:
    """Table in Markdown: ours and CORL's for each log and method."""
    lines = ["| log | method | ours | CORL's |", "|---|---|---:|---:|"]
    for log, methods in theirs.items():
        for method, seeds in methods.items():
            if ours[log][method].keys() != seeds.keys():
                raise SystemExit(f"{log}/{method}: seeds {[*ours[log][method]]} here, {[*seeds]} of CORL")
            cells = [format_cell(list(scores[log][method].values())) for scores in (ours, theirs)]
            lines.append(f"| {log.replace('_', '-')} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corl", type=Path, help="clone of CORL")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "offline" / "pendulum")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "offline")
    options = parser.parse_args()
    torch.set_num_threads(1)
    anchors = json.loads((options.logs / "anchors.json").read_text())
    file = options.out / "pendulum_corl.json"
    result = json.loads(file.read_text()) if file.exists() else {"anchors": anchors, "updates": UPDATES, "scores": {}}
    if result["anchors"] != anchors or result["updates"] != UPDATES:
        raise SystemExit(f"{file} is of other logs or of another budget; delete it to measure anew")
    scores: dict[str, dict[str, dict[str, float]]] = result["scores"]
    for log in LOGS:
        with hdf5().File(options.logs / f"{log}.hdf5") as columns:
            env = GymPendulum({name: columns[name][:] for name in columns}, anchors)
        for method in options.methods:
            seeds = scores.setdefault(log, {}).setdefault(method, {})
            for seed in map(str, options.seeds):
                if seed not in seeds:
                    seeds[seed] = run_corl(options.corl.absolute(), method, env, int(seed))
                    result["machine"] = describe_machine(1)
                    file.write_text(json.dumps(result, indent=2) + "\n")
                print(f"{log}/{method}, seed {seed}: {seeds[seed]:.1f}", flush=True)
    print(format_scores(read_ours(options.out), scores))


if __name__ == "__main__":
    main()
