"""BabyAI in words: missions in a grid that the agent sees in part."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmrl.core.installation.optional_packages import import_optional
from mmrl.core.rng import derive_seed
from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.babyai.names import choose_names, read_names, rename
from tasks.environment import TextEnvironmentTask

if TYPE_CHECKING:  # an optional package
    import gymnasium

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""Actions of minigrid, in the order of their numbers."""
_DOORS = ("open", "closed", "locked")


@dataclass(frozen=True)
class Problem:
    """A level, the seed of its initial state, and what that state is."""

    level: str
    seed: int
    state: str = field(repr=False)


@dataclass(frozen=True)
class BabyAI(TextEnvironmentTask):
    """BabyAI's levels, with the observations and actions in words.

    Source: Chevalier-Boisvert et al., "BabyAI: A Platform to Study the Sample Efficiency of Grounded Language
    Learning", 2019, arXiv:1810.08272; in words as in Carta et al., "Grounding Large Language Models in Interactive
    Environments with Online Reinforcement Learning", 2023, arXiv:2302.02662.

    Args:
        levels: names of levels, drawn with equal probability.
        names: by a colour or kind of object the word in its place, or several, one of which each initial state draws;
            others in `evaluation.task` measure the generalisation to words that were not seen.
    """

    name = "babyai"
    packages = ("minigrid",)
    levels: tuple[str, ...] = ("GoToLocal", "PickupLoc", "PutNextLocal", "OpenDoor")
    count: int = 2000
    held_out: int = 256
    max_turns: int = 128
    names: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "names", read_names(self.names))
        for level in self.levels:
            make_level(level).close()

    def draw(self, rng: np.random.Generator) -> Problem:
        level, seed = self.levels[int(rng.integers(len(self.levels)))], int(rng.integers(2**31))
        env = make_level(level)
        observation, _ = env.reset(seed=seed)
        base: Any = env.unwrapped
        agent = f"{tuple(map(int, base.agent_pos))} {int(base.agent_dir)}"
        grid = derive_seed(str(base.grid.encode().tolist()))
        return Problem(level, seed, f"{observation['mission']}, agent {agent}, grid {grid}")

    def split_key(self, problem: Problem) -> str:
        return f"{problem.level} {problem.state}"

    def explain(self, problem: Problem) -> str:
        return f"You walk through rooms. Actions: {', '.join(ACTIONS)}. Toggle opens doors and boxes."

    def make_environment(self) -> BabyAIEnvironment:
        return BabyAIEnvironment(self.names)


class BabyAIEnvironment(TextEnvironment):
    """One level at a time.

    The reward is minigrid's: 1 - 0.9 steps / max_steps for the mission. Scores: exact (1 if it is accomplished) and
    efficiency (that reward).

    Args:
        names: as of the task.
    """

    def __init__(self, names: Mapping[str, tuple[str, ...]]) -> None:
        self.names = names
        self.levels: dict[str, gymnasium.Env] = {}

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        problem: Problem = prompt.info["problem"]
        if problem.level not in self.levels:
            self.levels[problem.level] = make_level(problem.level)
        self.env = self.levels[problem.level]
        observation, _ = self.env.reset(seed=problem.seed)
        self.chosen = choose_names(self.names, problem.seed)
        self.bot: Any = None
        self.last: int | None = None
        self.advice: str | None = None  # of the bot in this state
        return self._observe(observation)

    def apply(self, action: str) -> TextStep:
        if action.strip().lower() not in ACTIONS:
            return TextStep(
                f"\nThere is no such action.\n{self.text}",
                valid=False,
                scores=self.scores,
                admissible_actions=ACTIONS,
            )
        if self.bot is not None:  # it has to be asked in every step of an episode, whatever the action is
            self.expert_action()
        self.last, self.advice = ACTIONS.index(action.strip().lower()), None
        observation, reward, terminated, truncated, _ = self.env.step(self.last)
        return self._observe(observation, float(reward), terminated, truncated)

    def expert_action(self) -> str:
        """Ask the bot of BabyAI."""
        from minigrid.utils.baby_ai_bot import BabyAIBot

        if self.bot is None:
            self.bot, self.last = BabyAIBot(self.env), None
        if self.advice is None:
            self.advice = ACTIONS[int(self.bot.replan(self.last))]
        return self.advice

    def random_action(self, rng: np.random.Generator) -> str:
        return ACTIONS[int(rng.integers(len(ACTIONS)))]

    def close(self) -> None:
        for env in self.levels.values():
            env.close()

    def _observe(
        self, observation: Any, reward: float = 0.0, terminated: bool = False, truncated: bool = False
    ) -> TextStep:
        item = self.env.unwrapped.carrying  # type: ignore[attr-defined]
        view = describe_view(observation["image"])
        lines = [f"Mission: {observation['mission']}.", f"You see {', '.join(view) or 'nothing'}."]
        if item is not None:
            lines.append(f"You carry a {item.color} {item.type}.")
        self.text = rename("\n".join([*lines, ">"]), self.chosen)
        self.scores = {"exact": float(reward > 0), "efficiency": reward}
        return TextStep(
            f"\n{self.text}", (), reward, terminated, truncated, scores=self.scores, admissible_actions=ACTIONS
        )


def describe_view(image: np.ndarray) -> list[str]:
    """Describe the objects of a partial view [width, height, 3] of minigrid, seen from the middle of its last column.

    Walls are described in front of the agent and to its left and right, where they are the next thing.
    """
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    width, height = image.shape[:2]
    here = (width // 2, height - 1)
    kinds = np.vectorize(IDX_TO_OBJECT.get)(image[..., 0])
    out = []
    for x in range(width):
        for y in range(height):
            kind = kinds[x, y]
            if kind in ("unseen", "empty", "wall", "floor", "agent") or (x, y) == here:
                continue
            state = f"{_DOORS[image[x, y, 2]]} " if kind == "door" else ""
            out.append(f"a {state}{IDX_TO_COLOR[image[x, y, 1]]} {kind} {describe_offset(x - here[0], here[1] - y)}")
    for name, (dx, dy) in {"forward": (0, -1), "left": (-1, 0), "right": (1, 0)}.items():
        for steps in range(1, max(width, height)):
            x, y = here[0] + dx * steps, here[1] + dy * steps
            if not (0 <= x < width and 0 <= y < height) or kinds[x, y] not in ("empty", "wall", "floor"):
                break
            if kinds[x, y] == "wall":
                out.append(f"a wall {_count(steps)} {name}")
                break
    return out


def describe_offset(right: int, forward: int) -> str:
    """Describe where something is in steps, as in: 2 steps forward and 1 step left."""
    parts = [f"{_count(forward)} forward"] if forward else []
    if right:
        parts.append(f"{_count(abs(right))} {'right' if right > 0 else 'left'}")
    return " and ".join(parts)


def _count(steps: int) -> str:
    return f"{steps} step{'s' if steps > 1 else ''}"


def make_level(level: str) -> gymnasium.Env:
    """Make a level of BabyAI by its name, such as GoToLocal."""
    import gymnasium

    import_optional("minigrid", "task 'babyai'")  # registers the levels
    from minigrid.envs.babyai.core import roomgrid_level

    logging.getLogger("gymnasium").setLevel(logging.ERROR)
    vars(roomgrid_level)["print"] = _discard  # it prints every layout that it rejects, several an episode
    versions = [name for name in gymnasium.registry if name.startswith(f"BabyAI-{level}-v")]
    if not versions:
        raise ValueError(f"task babyai: there is no level {level!r}; levels are those of minigrid, such as GoToLocal")
    return gymnasium.make(versions[-1]).unwrapped


def _discard(*printed: object) -> None:
    """Print nothing."""
