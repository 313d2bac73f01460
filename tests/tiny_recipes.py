"""Runs of seconds for tests: a task that random policies score on, the words of a tiny run, and what a run leaves."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Task
from mmrl.data.minibatches import UpdateEpoch
from mmrl.rewards.base import Reward
from mmrl.tools.base import Tool
from mmrl.tools.call_parser import TagParser, ToolCall
from mmrl.transforms.base import EpisodeTransform
from tests.acts.gradients import TermGradients
from tests.quick_python import quick_python
from tests.text_environments import Count

OWN = (
    "recipe=sft",
    "recipe=ppo_control",
    "recipe=ppo_recurrent",
    "recipe=demo_vla",
    "recipe=sac",
    "recipe=td3",
    "recipe=dqn",
    "recipe=metra",
    "recipe=dreamer",
    "recipe=alp_gmm",
    "recipe=rocket3",
    "recipe=bradley_terry",
    "recipe=flow_sde_grpo",
)
ROOT = Path(__file__).parent.parent
COUNTING = (
    "task=arithmetic",
    "data.task._target_=tests.tiny_recipes.Counting",
    "policy=tiny_text",
    "policy.config.hidden_size=32",
    "policy.config.intermediate_size=64",
    "policy.config.num_hidden_layers=2",
)
"""A task on which random weights score, and a model of a few thousand weights."""
TEXT = (
    "recipe=grpo",
    *COUNTING,
    "data.num_prompts=6",
    "data.group_size=4",
    "data.num_minibatches=2",
    "data.sampling.max_tokens=5",
    "data.reward.weights={exact: 0.5, digits: 1.0}",
    "data.evaluation.count=4",
    "optimizer.eps=1e-3",
)
QUIET = (
    "trainer.accelerator=cpu",
    "trainer.callbacks.warm_start.stages=null",
    "trainer.logger=false",
    "trainer.callbacks.progress=null",
    "trainer.enable_progress_bar=false",
)


@dataclass(frozen=True)
class Counting(Task):
    """Write digits: `digits` is the share of five characters that are one, `exact` whether any is."""

    split: str = "train"
    image: bool = False  # before the words
    without: int = 0  # of the images, every so many prompts have none
    name = "counting"

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Prompt:
        words = f"{'count ' * (index % 4)}{index}="
        key = f"counting/{self.split}/{index}"
        if not self.image or (self.without and index % self.without == 0):
            return Prompt(key, ({"role": "user", "content": words},))
        image = np.random.default_rng(index).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        content = [{"type": "image"}, {"type": "text", "text": words}]
        return Prompt(key, ({"role": "user", "content": content},), (image,))

    def on(self, split: str) -> Counting:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        count = sum(character.isdigit() for character in episode.output)
        return {"digits": count / 5, "exact": float(count > 0)}


@dataclass(frozen=True)
class Generated(Counting):
    """Stands in for the task reasoning_gym, whose package is not installed everywhere."""

    dataset: str = ""
    parameters: Any = None
    extract: str | None = None


@dataclass(frozen=True)
class Pages(Count):
    """Stands in for pages in a browser."""

    images: bool = True
    pages: Any = None
    view: str = ""
    columns: int = 0
    rows: int = 0
    actions: Any = None
    reload: bool = False
    explanation: str = ""


def iterations(done: dict) -> list[dict[str, float]]:
    """The metrics of iterations, without those of evaluations."""
    return [metrics for metrics in done["metrics"] if any(name.startswith("rollout/") for name in metrics)]


class Recorder(L.Callback):
    """Writes, for each rank, the rows of every micro-batch, the metrics of every iteration and the final state."""

    def __init__(self, folder: str):
        self.folder = Path(folder)
        self.minibatches: list[list[tuple]] = []
        self.metrics: list[dict[str, float]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        # sampled from the replay buffer, for several updates at once
        if "discount" in batch or "continues" in batch or not batch:
            self.minibatches.append(replayed_rows(batch))
            return
        for piece in batch if isinstance(batch, UpdateEpoch) else [batch]:
            actions = [tuple(row[mask].tolist()) for row, mask in zip(piece["action"], piece["action_mask"])]
            weights = piece["loss_weights"].sum(1).tolist()
            self.minibatches.append([(g, a) for g, a, w in zip(piece["group"].tolist(), actions, weights) if w > 0])

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.metrics.append({k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("val/")})

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        learned = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("train/")}
        played = {k: v for k, v in trainer.datamodule.metrics.items() if not ("second" in k or k.startswith("time/"))}
        self.metrics.append({**learned, **played})

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        left = {
            "weights": {name: whole(value) for name, value in pl_module.state_dict().items()},
            "held": sum(count_held(model) for model in (pl_module.policy, *pl_module.models.values())),
            "optimizer": [o.state_dict() for o in trainer.optimizers] if trainer.world_size == 1 else None,
            "data": trainer.datamodule.state_dict(),
            "minibatches": self.minibatches,
            "metrics": self.metrics,
        }
        torch.save(left, self.folder / f"rank{trainer.global_rank}.pt")


def replayed_rows(batch: Batch) -> list[tuple]:
    """The update and place of every row of this process in the batches of several updates, and its numbers."""
    if not batch:
        return []
    updates, rows = batch["loss_weights"].shape[:2]
    places = batch.get("place", torch.arange(rows).expand(updates, rows))
    columns = [column for name, column in sorted(batch.items()) if name not in ("place", "loss_weights")]
    numbers = torch.cat([column.float().reshape(updates, rows, -1) for column in columns], dim=-1)
    return [
        ((update, place), tuple(row))
        for update, pairs in enumerate(zip(places.tolist(), numbers.tolist()))
        for place, row in zip(*pairs)
        if place >= 0
    ]


def count_held(model: torch.nn.Module) -> int:
    """How many numbers of a model's weights this process holds."""
    return sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in model.parameters())


def whole(value: torch.Tensor) -> torch.Tensor:
    """The tensor with the shards of all processes."""
    return value.full_tensor().clone() if hasattr(value, "full_tensor") else value.clone()


class Killed(L.Callback):
    """Ends the process without warning in the middle of an iteration."""

    def __init__(self, epoch: int):
        self.epoch = epoch

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == self.epoch:
            os.kill(os.getpid(), signal.SIGKILL)


def override(base: Sequence[str], more: Sequence[str]) -> list[str]:
    """The words of both, without those of `base` whose key is in `more`: a key may be given once.

    Sizes of a text policy are none of one that sees.
    """
    given = {word.partition("=")[0] for word in more}
    kept = [word for word in base if word.partition("=")[0] not in given]
    return [*(word for word in kept if "policy=tiny_vlm" not in more or not word.startswith("policy.config.")), *more]


def words(folder: Path, *more: str) -> list[str]:
    """A text run unless `more` begins with another recipe of its own."""
    recorder = f"trainer.callbacks.recorder={{_target_: tests.tiny_recipes.Recorder, folder: '{folder}/record'}}"
    base = () if more and more[0] in OWN else TEXT
    return override([*base, *QUIET, f"run_dir='{folder}'", recorder], more)


def fit(folder: Path, *more: str) -> dict[str, Any]:
    """Run in this process, with parts made afresh."""
    CLI(to_lightning(compose(words(folder, *more)))).fit()
    return record(folder)


def command(folder: Path, *more: str) -> dict[str, Any]:
    """Run as a user does: the words to `python -m mmrl fit` in a process of its own."""
    done = start(words(folder, *more))
    _, errors = done.communicate(timeout=120)
    assert done.returncode == 0, errors[-30000:]
    return record(folder)


def start(words: Sequence[str]) -> subprocess.Popen:
    keep = ("PATH", "HOME", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "LANG")
    environment = {k: v for k, v in os.environ.items() if k in keep} | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [quick_python(), "-m", "mmrl", "fit", *words]
    return subprocess.Popen(
        line, env=environment, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def free_port(count: int = 8) -> int:
    """The first of `count` TCP ports that nobody uses, below those that the system gives to whoever asks for any.

    A port that the system names is given to another test as soon as it is closed; one of these only by chance.
    """
    first, last = 10_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]) - count
    for port in random.SystemRandom().sample(range(first, last), 200):
        with ExitStack() as probes:
            try:
                for number in range(count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port + number))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no {count} free ports from {first} to {last}")


def record(folder: Path, rank: int = 0) -> dict[str, Any]:
    return torch.load(folder / "record" / f"rank{rank}.pt", weights_only=False)


class Alternating(Reward):
    """Pays the episodes of a problem 0 and 1 in turn, so that a policy without any training has something to learn."""

    def __call__(self, group: Sequence[Episode]) -> list[float]:
        if len(group) == 1 and isinstance(group[0].output, str):  # answers that are judged one by one
            return [float(zlib.crc32(group[0].output.encode()) % 2)]
        return [float((place + episode.group + episode.group // 2) % 2) for place, episode in enumerate(group)]


@dataclass(frozen=True)
class DropFrom(EpisodeTransform):
    """Drops every episode from one iteration on.

    Args:
        iteration: the first one that is left without episodes.
    """

    iteration: int

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [] if ctx.iteration >= self.iteration else episodes


class Watcher(TermGradients):
    """Notes which terms have a gradient at all, and the weights and schedules at the end of every iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.start: dict[str, torch.Tensor] = {}
        self.ends: list[dict[str, torch.Tensor]] = []
        self.schedules: list[list[int]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.start = weights_of(pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.ends.append(weights_of(pl_module))
        self.schedules.append([each.scheduler.last_epoch for each in trainer.lr_scheduler_configs])


def weights_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of every parameter."""
    return {name: value.detach().clone() for name, value in module.named_parameters()}


class Searches(TagParser):
    """Reads every turn that ends as a search for a red page, so that random completions lead to images."""

    def parse(self, text: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
        return [ToolCall("?", "red")]
