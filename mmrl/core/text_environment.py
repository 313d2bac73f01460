"""Interface of environments in text: each turn is an observation, an action in words and a reward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mmrl.core.types import Prompt, Task


@dataclass(frozen=True)
class TextStep:
    """Result of a reset or a step of a text environment.

    Args:
        text: observation that the policy reads next.
        images: uint8 [H, W, 3], shown before the text.
        reward: of the action that led here; 0 after a reset.
        terminated: whether the episode is over by itself, such as solved or lost.
        truncated: whether a limit of the environment ended the episode.
        valid: whether the environment knows the action; actions that it does not know are counted.
        scores: named scores that the episode has if it ends here.
        admissible_actions: what can be done next, for policies that choose among strings; empty where any text can.
    """

    text: str
    images: tuple[np.ndarray, ...] = ()
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    scores: Mapping[str, float] = field(default_factory=dict)
    admissible_actions: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


class TextEnvironment(ABC):
    """Base class of text environments: one instance plays one episode after another.

    The initial state is a function of the prompt alone, so that the episodes of a group start alike; `seed` keys what
    happens by chance afterwards. Calls of one instance never overlap, but come from several threads.
    """

    def reset(self, prompt: Prompt, seed: int = 0) -> TextStep:
        """Begin an episode; return its first observation."""
        self._prompt, self._seed, self._actions = prompt, seed, list[str]()
        return self.start(prompt, seed)

    def step(self, action: str) -> TextStep:
        """Apply an action. A wrong action is answered by a text; only a failure of the environment raises."""
        self._actions.append(action)
        return self.apply(action)

    @abstractmethod
    def start(self, prompt: Prompt, seed: int) -> TextStep:
        """Set the state to the beginning of an episode."""

    @abstractmethod
    def apply(self, action: str) -> TextStep:
        """Change the state by an action."""

    def expert_action(self) -> str:
        """Return the action that an expert would take in this state, the ceiling of the scores."""
        raise NotImplementedError(f"{type(self).__name__} has no expert; it cannot be imitated")

    def random_action(self, rng: np.random.Generator) -> str:
        """Draw an action that does not depend on the observations, the floor of the scores."""
        raise NotImplementedError(f"{type(self).__name__} has no random actions")

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the episode as plain values; the default is what leads to it: prompt, seed, actions."""
        return {"prompt": self._prompt, "seed": self._seed, "actions": list(self._actions)}

    def load_state_dict(self, state: dict[str, Any]) -> TextStep:
        """Restore a saved state and return its observation; the default plays the actions again."""
        step = self.reset(state["prompt"], state["seed"])
        for action in state["actions"]:
            step = self.step(action)
        return step

    def close(self) -> None:
        """Release what the environment holds, such as a process."""


@runtime_checkable
class EnvironmentTask(Protocol):
    """A task whose prompts are episodes of a text environment; the messages of a prompt explain the environment."""

    name: str
    max_turns: int  # actions of an episode; whoever plays it ends it then

    def make_environment(self) -> TextEnvironment:
        """Return an environment that plays the prompts of this task."""


def environment_task(task: Task, rollout: str) -> EnvironmentTask:
    """Return the task; refuses one without environments, in the name of the rollout that needs them."""
    if not isinstance(task, EnvironmentTask):
        raise ValueError(f"{rollout} needs a task of text environments, and task {task.name!r} has none")
    return task
