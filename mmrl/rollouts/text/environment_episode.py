"""An episode of a text environment: what was observed and done, and what the policy is shown of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Completion, Ended, Episode, Turn
from mmrl.rollouts.base import text_observation

UNPARSABLE, INVALID = "environment/unparsable", "environment/invalid"


@dataclass(eq=False)
class EnvironmentEpisode:
    """An unfinished episode of a text environment.

    `info["scores"]` becomes the scores of the last step, with return = sum_t gamma^t r_t and turns;
    `info["counts"]` counts the turns without an action (unparsable) and the actions that the environment does not know
    (invalid).

    Args:
        episode: gets the turns, the end and the scores.
        max_turns: actions after which time is up.
        gamma: discount factor per turn.
    """

    episode: Episode
    max_turns: int
    gamma: float = 1.0
    environment: TextEnvironment | None = None
    steps: list[TextStep] = field(default_factory=list)  # one more than actions, except while the environment runs
    actions: list[str] = field(default_factory=list)  # as the policy reads them in later turns
    counts: Counter[str] = field(default_factory=lambda: Counter({UNPARSABLE: 0, INVALID: 0}))
    over: bool = False

    def observation(self, history: int = 0, image_history: int = 0) -> Mapping[str, Any]:
        """Return the raw observation of the next turn.

        Args:
            history: earlier turns of which text and action are shown.
            image_history: earlier turns of which images are shown too.
        """
        raw = text_observation(self.episode.prompt)
        messages, images, past = list(raw["messages"]), list(raw["images"]), len(self.actions)
        for turn in range(max(0, past - history), past + 1):
            step = self.steps[turn]
            step_images = step.images if turn >= past - image_history else ()
            parts = [{"type": "image"}] * len(step_images) + [{"type": "text", "text": step.text}]
            messages.append({"role": "user", "content": parts if step_images else step.text})
            images += step_images
            if turn < past:
                messages.append({"role": "assistant", "content": self.actions[turn]})
        videos = {"videos": raw["videos"]} if raw.get("videos") else {}
        admissible = self.steps[past].admissible_actions
        actions = {"admissible_actions": admissible} if admissible else {}
        return {"messages": tuple(messages), "images": tuple(images), **videos, **actions}

    def write(self, completion: Completion, action: str) -> None:
        """Append a turn of the policy; its reward comes with the next step."""
        self.episode.turns.append(Turn(completion))  # type: ignore[attr-defined]
        self.actions.append(action)

    def read(self, step: TextStep) -> None:
        """Append what the environment returned, and end the episode where it is over."""
        self.steps.append(step)
        turns = self.episode.turns
        if turns:
            turns[-1].reward = float(step.reward)
        self.counts[INVALID] += not step.valid
        if step.done:
            self.end("done" if step.terminated else "time")
        elif len(turns) >= self.max_turns:
            self.end("time")

    def end(self, ended: Ended, error: str | None = None) -> None:
        """End the episode."""
        self.over, self.episode.ended, turns = True, ended, self.episode.turns
        self.episode.info |= {"counts": dict(self.counts), "turns": len(turns)}
        if error is not None:
            self.episode.info["error"] = error
        if self.steps:
            earned = sum(self.gamma**t * turn.reward for t, turn in enumerate(turns))
            scores = {name: float(score) for name, score in self.steps[-1].scores.items()}
            self.episode.info["scores"] = {"return": float(earned), "turns": float(len(turns)), **scores}
