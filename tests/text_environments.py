"""A text environment for tests: count up to a target, with images, chance, failures and slow steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Episode, Prompt, Task


@dataclass(frozen=True)
class Count(Task):
    """Reach a target: "+" or a letter at the beginning adds one and is rewarded by 1, "-" subtracts one.

    "raise!" raises and "hang!" hangs.

    Args:
        max_turns: actions of an episode.
        images: whether each step has an image, all of whose pixels are the count.
        chance: whether "+" adds one or two, by the seed of the episode.
        seconds: that a step takes.
        split: "train" or "held_out".
        log: of environments that were made or closed.
        running: one entry for each action that has begun and not ended.
        at_once: how many there were at the beginning of each.
    """

    max_turns: int = 5
    images: bool = False
    chance: bool = False
    seconds: float = 0.0
    split: str = "train"
    log: list[str] = field(default_factory=list, compare=False)
    running: list[int] = field(default_factory=list, compare=False)
    at_once: list[int] = field(default_factory=list, compare=False)
    name = "count"

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Prompt:
        return Prompt(
            f"count/{self.split}/{index}",
            ({"role": "system", "content": f"Count to {index % 3 + 1}. "},),
            info={"target": index % 3 + 1},
        )

    def on(self, split: str) -> Count:
        return replace(self, split=split)

    def make_environment(self) -> TextEnvironment:
        self.log.append("made")
        return CountEnvironment(self)

    def score(self, episode: Episode) -> dict[str, float]:
        return dict(episode.info["scores"])


class CountEnvironment(TextEnvironment):
    """One count."""

    def __init__(self, task: Count):
        self.task = task

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.count, self.target, self.rng = 0, prompt.info["target"], np.random.default_rng(seed)
        return self._observe()

    def apply(self, action: str) -> TextStep:
        self.task.running.append(1)
        self.task.at_once.append(len(self.task.running))
        time.sleep(60 if action == "hang!" else self.task.seconds)
        self.task.running.pop()
        if action == "raise!":
            raise OSError("the counter is broken")
        plus = action[0].isalpha() or action == "+"
        if plus:
            self.count += 1 + int(self.task.chance and self.rng.integers(2))
        elif action == "-":
            self.count -= 1
        return self._observe(float(plus), plus or action == "-")

    def expert_action(self) -> str:
        return "+"

    def random_action(self, rng: np.random.Generator) -> str:
        return "+-"[int(rng.integers(2))]

    def _observe(self, reward: float = 0.0, valid: bool = True) -> TextStep:
        images = (np.full((32, 32, 3), abs(self.count), np.uint8),) if self.task.images else ()
        reached = self.count >= self.target
        return TextStep(f"[{self.count}]", images, reward, reached, valid=valid, scores={"exact": float(reached)})

    def close(self) -> None:
        self.task.log.append("closed")


def texts(raw: dict[str, Any]) -> list[tuple[str, str]]:
    """The conversation as (role, text); <image> stands for an image part."""
    return [
        (
            message["role"],
            message["content"]
            if isinstance(message["content"], str)
            else "".join(part.get("text", "<image>") for part in message["content"]),
        )
        for message in raw["messages"]
    ]
