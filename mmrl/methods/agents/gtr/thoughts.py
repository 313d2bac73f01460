"""GTR: rollouts with a thought and an action per turn, and the environment's correction of each thought.

- episodes of the policy: `ThoughtRollout`; of the expert: `ThoughtDemonstrations`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from mmrl.core.types import Completion, Context, Episode
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.environment import EnvironmentRollout, RunningEpisode
from mmrl.rollouts.text.environment_demonstrations import EnvironmentDemonstrations


@runtime_checkable
class ThoughtEnvironment(Protocol):
    """A text environment with a corrector, which knows the state."""

    def correct_thought(self, thought: str) -> str | None:
        """Return the right thought in this state; None where the given one is right."""


def correct_thought(play: RunningEpisode, thought: str) -> str | None:
    """Ask the environment of an episode; refuse one without a corrector."""
    if not isinstance(play.environment, ThoughtEnvironment):
        raise ValueError(
            f"rollout: {type(play.environment).__name__} has no correct_thought; choose a task whose environments "
            "correct thoughts, such as data.task._target_=tasks.gridworld.thoughts.ThoughtGridWorld"
        )
    return play.environment.correct_thought(thought)


class ThoughtRollout(EnvironmentRollout):
    """Episodes of text environments whose turns are a thought, a marker and an action; the corrector reads the thought.

    What it returns stands in `info["corrections"]`, an entry for each turn, and the score `thought_accuracy` is the
    fraction of right thoughts. The corrections change neither the turn nor the reward. A turn without the marker has no
    action and an empty thought. Source: GTR, 2025, arXiv:2503.08525.

    Args:
        marker: stands between thought and action; the last one in a completion counts.
        options: those of `EnvironmentRollout`.
    """

    def __init__(self, marker: str = ":", **options: Any):
        super().__init__(extract={"marker": {"marker": marker}}, **options)
        self.marker = marker

    def sample(self, ready: Sequence[RunningEpisode], ctx: Context) -> list[Completion]:
        turns = super().sample(ready, ctx)
        for play, done in zip(ready, turns):
            thought = str(done.output).rpartition(self.marker)[0].strip()
            play.episode.info.setdefault("corrections", []).append(correct_thought(play, thought))
        return turns

    def collect(self, prompts: Any, ctx: Context) -> list[Episode]:
        episodes = super().collect(prompts, ctx)
        for episode in episodes:
            corrections = episode.info.get("corrections", [])
            if corrections and "scores" in episode.info:
                episode.info["scores"]["thought_accuracy"] = corrections.count(None) / len(corrections)
        return episodes


class ThoughtDemonstrations(EnvironmentDemonstrations):
    """Demonstrations with right thoughts: the corrector's thought, the marker and the expert's action.

    Args:
        marker: stands between thought and action.
        options: those of `EnvironmentDemonstrations`; a random action stands behind a right thought too.
    """

    def __init__(self, marker: str = ":", **options: Any):
        super().__init__(extract={"marker": {"marker": marker}}, **options)
        self.marker = marker

    def sample(self, ready: Sequence[RunningEpisode], ctx: Context) -> list[Completion]:
        completions = []
        for play, done in zip(ready, super().sample(ready, ctx)):
            text = f"{correct_thought(play, '') or ''}{self.marker}{self.extractor(str(done.output))}"
            completions.append(demonstration(play.observation(self.history, self.image_history), text, ctx))
        return completions
