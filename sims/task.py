"""SimTask: a simulator as a task, with one initial state per prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mmrl.core.rng import derive_seed
from mmrl.core.types import Episode, Prompt, Sim, Task
from mmrl.rewards.models.frames import FrameReward
from sims.reward_models import RewardModelSim


@dataclass(frozen=True)
class SimTask(Task):
    """Numbered initial states of a simulator; the two splits draw them from disjoint seed streams.

    Args:
        sim: the simulator.
        count: how many initial states the split has.
        split: "train" or "held_out".
        seed: of the initial states; part of the task, not of the run.
        reward_model: rewards the decisions of the training split from their images; None: the simulator's reward alone.
        env_reward_coef: coefficient of the simulator's reward beside the reward model's.
    """

    sim: Sim
    count: int = 4096
    split: str = "train"
    seed: int = 0
    reward_model: FrameReward | None = None
    env_reward_coef: float = 0.0

    def __post_init__(self) -> None:
        if self.reward_model is not None and not isinstance(self.sim, RewardModelSim):
            object.__setattr__(self, "sim", RewardModelSim(self.sim, self.reward_model, self.env_reward_coef))

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Prompt:
        if not 0 <= index < self.count:
            raise IndexError(f"task {self.name!r} has {self.count} initial states, asked for {index}")
        seed = seed_of(self.split, derive_seed(self.name, self.seed, index))
        info = {"seed": seed, "task": self.sim.task_of(seed)}
        return Prompt(key=f"{self.name}/{self.split}/{index}", info=info)

    def on(self, split: str) -> SimTask:
        """The task on another split; the reward model is used in training only."""
        if split != "train" and isinstance(self.sim, RewardModelSim):
            return replace(self, split=split, sim=self.sim.sim, reward_model=None)
        return replace(self, split=split)

    def demonstrations(self, prompts: Sequence[Prompt]) -> list[list[tuple[Mapping[str, Any], Any]]]:
        """Decisions of the scripted expert from each initial state."""
        demonstrate = getattr(self.sim, "demonstrate", None)
        if demonstrate is None:
            raise NotImplementedError(f"sim {self.name!r} has no scripted expert; it cannot be imitated")
        return demonstrate([prompt.info["seed"] for prompt in prompts])

    def score(self, episode: Episode) -> dict[str, float]:
        """Scores that the simulator reported at the end of the episode, and the undiscounted return."""
        reported = {k: float(v) for k, v in episode.info.get("scores", {}).items()}
        return {**reported, "return": episode.env_reward}

    def contract(self) -> dict[str, Any]:
        """Contract of the simulator: its scene, images and units."""
        return self.sim.contract()


Split = Literal["train", "held_out"]
_TAGS: dict[str, int] = {"train": 0, "held_out": 1}


def seed_of(split: str, draw: int) -> int:
    """Seed of a split from a 64-bit draw; the seeds of the two splits are disjoint."""
    return (draw >> 4 << 1) | _TAGS[split]


def split_of(seed: int) -> Split:
    """Split that a seed belongs to."""
    return "held_out" if seed & 1 else "train"
