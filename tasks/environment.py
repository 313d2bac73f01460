"""Base of tasks whose problems are episodes of a text environment."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.text_environment import TextEnvironment
from mmrl.core.types import Episode, Prompt
from tasks.generated import SeededTask


@dataclass(frozen=True, kw_only=True)
class TextEnvironmentTask(SeededTask):
    """Task of a text environment: each problem is an initial state, no initial state is in both splits.

    Args:
        max_turns: actions of an episode.
    """

    max_turns: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, f"task {self.name!r}:", max_turns=self.max_turns)

    @abstractmethod
    def make_environment(self) -> TextEnvironment:
        """Return an environment that plays the prompts of this task."""

    @abstractmethod
    def explain(self, problem: Any) -> str:
        """Return the text at the beginning of every observation: the rules and the actions."""

    def write_prompt(self, problem: Any, key: str) -> Prompt:
        return Prompt(key, ({"role": "system", "content": self.explain(problem)},), info={"problem": problem})

    def script(self, index: int) -> list[str]:
        """The actions of the environment's expert in an episode."""
        environment, actions = self.make_environment(), list[str]()
        step = environment.reset(self[index])
        while not step.done and len(actions) < self.max_turns:
            actions.append(environment.expert_action())
            step = environment.step(actions[-1])
        environment.close()
        return actions

    def score(self, episode: Episode) -> dict[str, float]:
        """Return the scores that the rollout wrote at the end of the episode: the environment's, return and turns."""
        if "scores" not in episode.info:
            raise ValueError(
                f"the episode of {episode.prompt.key!r} has no info['scores']: task {self.name!r} is played with "
                "rollout=text_environment"
            )
        return dict(episode.info["scores"])
