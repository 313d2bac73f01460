"""Gymnasium environments with named discrete actions, in text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.environment import TextEnvironmentTask

if TYPE_CHECKING:
    import gymnasium

_COLOR = re.compile(r"\x1b\[([\d;]*)m(.*?)\x1b\[0m", re.S)
_COLORS = ("gray", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


@dataclass(frozen=True)
class Problem:
    """The seed of an initial state, and its text."""

    seed: int
    text: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class GymText(TextEnvironmentTask):
    """A gymnasium environment whose actions have names, such as FrozenLake and Taxi.

    The policy reads the observation where it is text, and what `render_mode="ansi"` writes otherwise.

    Args:
        env: id of the environment, or MODULE:ID.
        actions: names of its actions, in the order of their numbers.
        instruction: text before every observation; None for a list of the actions.
        options: further arguments of `gymnasium.make`.
        split_by: what decides the split: the text of the initial "observation", or its "seed" where the environment has
            one initial state, which then is in both splits.
    """

    name = "gym_text"
    env: str
    actions: tuple[str, ...]
    instruction: str | None = None
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    split_by: Literal["observation", "seed"] = "observation"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "actions", tuple(self.actions))
        make_environment(self).close()

    def draw(self, rng: np.random.Generator) -> Problem:
        seed = int(rng.integers(2**31))
        env = make_environment(self)
        observation, _ = env.reset(seed=seed)
        text = write_observation(env, observation)
        env.close()
        return Problem(seed, text)

    def split_key(self, problem: Problem) -> str:
        return str(problem.seed) if self.split_by == "seed" else problem.text

    def explain(self, problem: Problem) -> str:
        return f"Actions: {', '.join(self.actions)}." if self.instruction is None else self.instruction

    def make_environment(self) -> GymTextEnvironment:
        return GymTextEnvironment(self)


class GymTextEnvironment(TextEnvironment):
    """One environment of gymnasium.

    Rewards are those of the environment. Scores: exact, which is `is_success` or `success` of its info, and without
    them whether the episode terminated with a positive reward. Where its info has an `action_mask`, the actions outside
    of it are not admissible.
    """

    def __init__(self, task: GymText):
        self.task, self.env = task, make_environment(task)
        self.first = int(self.env.action_space.start)  # type: ignore[attr-defined]

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        observation, info = self.env.reset(seed=prompt.info["problem"].seed)
        # the initial state is the prompt's, chance afterwards is the episode's
        self.env.unwrapped.np_random = np.random.default_rng(seed)
        return self._observe(observation, info)

    def apply(self, action: str) -> TextStep:
        if action not in self.last.admissible_actions:
            return TextStep(
                f"\nThere is no such action.{self.last.text}",
                valid=False,
                scores=self.last.scores,
                admissible_actions=self.last.admissible_actions,
            )
        number = self.first + self.task.actions.index(action)
        observation, reward, terminated, truncated, info = self.env.step(number)
        return self._observe(observation, info, float(reward), terminated, truncated)

    def random_action(self, rng: np.random.Generator) -> str:
        return self.task.actions[int(rng.integers(len(self.task.actions)))]

    def close(self) -> None:
        self.env.close()

    def _observe(
        self,
        observation: Any,
        info: Mapping[str, Any],
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
    ) -> TextStep:
        success = info.get("is_success", info.get("success", terminated and reward > 0))
        actions = self.task.actions
        if "action_mask" in info:
            actions = tuple(name for name, allowed in zip(actions, info["action_mask"]) if allowed) or actions
        text = f"\n{write_observation(self.env, observation).strip()}\n>"
        scores = {"exact": float(success)}
        self.last = TextStep(text, (), reward, terminated, truncated, scores=scores, admissible_actions=actions)
        return self.last


def make_environment(task: GymText) -> gymnasium.Env:
    """Make the environment of a task.

    Raises:
        ValueError: there is no such environment, it has no text, or its actions are not those that are named.
    """
    import gymnasium
    from gymnasium import spaces

    try:
        env = gymnasium.make(task.env, render_mode="ansi", disable_env_checker=True, **task.options)
    except (gymnasium.error.Error, ModuleNotFoundError, TypeError) as error:
        raise ValueError(
            f"task gym_text: env={task.env!r} cannot be made with render_mode='ansi': {error}; give the id of an "
            "environment that gymnasium knows (MODULE:ID imports MODULE first), and task.options that it takes"
        ) from error
    modes = env.metadata.get("render_modes", [])
    if not isinstance(env.observation_space, spaces.Text) and "ansi" not in modes:
        raise ValueError(
            f"task gym_text: env={task.env!r} has no text: its observations are {env.observation_space} and it renders "
            f"{modes}, not ansi; wrap it so that its observation_space is Text"
        )
    if not isinstance(env.action_space, spaces.Discrete):
        raise ValueError(f"task gym_text: env={task.env!r} has actions {env.action_space}; they have to be Discrete")
    names = task.actions
    if len(names) != env.action_space.n or len(set(names)) < len(names) or not all(names):
        raise ValueError(
            f"task gym_text: env={task.env!r} has {env.action_space.n} actions, and task.actions names {list(names)}; "
            "give each one a name of its own, in the order of their numbers"
        )
    return env


def write_observation(env: gymnasium.Env, observation: Any) -> str:
    """Return an observation in words, or what the environment renders, with colours as in (red S)."""
    text = observation if isinstance(observation, str) else str(env.render())
    return _COLOR.sub(_write_color, text)


def _write_color(match: re.Match[str]) -> str:
    """Write a coloured text with the name of its colour, foreground or background."""
    codes = [int(code) for code in match[1].split(";") if code]
    names = [_COLORS[code % 10] for code in codes if code // 10 in (3, 4) and code % 10 < len(_COLORS)]
    return f"({' '.join([*names, match[2].strip()]).strip()})"
