"""The crafting world with skills as actions: each plays decisions of its own until it ends (options)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least
from sims.craft.expert import find_lack
from sims.craft.sim import CraftSim
from sims.craft.vector import CraftVectorEnv
from sims.craft.world import COLLECT, EMPTY, CraftWorld


def run_skill(world: CraftWorld, item: int, skill_steps: int) -> tuple[float, int]:
    """Play the skill of an item until it ends; returns the summed reward and the decisions that it took.

    The skill of a material walks to the nearest piece and collects it. It ends with that decision, whether the tools
    were held or not, after `skill_steps` decisions, or at once, for one decision without an effect, where no piece is
    left. The skill of another item makes it, in one decision. All end with the episode.

    Args:
        world: is changed.
        item: number of the item.
        skill_steps: most decisions of a skill.
    """
    reward, start = 0.0, world.steps
    while world.steps - start < skill_steps and world.steps < world.max_steps and not world.done:
        action = _choose_move(world, item)
        if action is None:
            world.steps, world.gained = world.steps + 1, EMPTY
            break
        reward += world.step(action)
        if action >= COLLECT:
            break
    return reward, world.steps - start


def _choose_move(world: CraftWorld, item: int) -> int | None:
    """The next action of an item's skill; None where no piece is left."""
    if item >= len(world.materials):
        return COLLECT + 1 + item - len(world.materials)
    way = world.nearest(item)
    if way is None:
        return None
    rows, columns = way
    if rows:
        return 1 if rows > 0 else 0
    return COLLECT if not columns else 3 if columns > 0 else 2


class SkillVectorEnv(CraftVectorEnv):
    """Crafting worlds whose action is the number of an item, whose skill is played to its end.

    The reward is that of all decisions of the skill. `infos["executed"]` int [n] counts them, and
    `infos["scores"]["decisions"]` those of the episode so far.

    Args:
        worlds: one an environment.
        subgoals: as `CraftVectorEnv`.
        skill_steps: most decisions of a skill.
    """

    def __init__(self, worlds: Sequence[CraftWorld], subgoals: bool, skill_steps: int):
        super().__init__(worlds, subgoals)
        self.skill_steps = skill_steps
        self.single_action_space = spaces.Discrete(len(self.envs[0].items))
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def captions(self) -> list[str]:
        """What every agent holds, which materials are left and what the task is, in words."""
        return [describe_stock(world) for world in self.envs]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = super().reset(seed=seed, options=options)
        return observation, self._count(infos, np.zeros(self.num_envs, np.int64))

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        rewards, executed = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        for i, over in enumerate(self.over):
            if not over:
                rewards[i], executed[i] = run_skill(self.envs[i], int(actions[i]), self.skill_steps)
                self._observe(i)
        done = np.array([world.done for world in self.envs])
        infos = self._count(self._infos(), executed)
        return self._seen.copy(), rewards, done, self.over & ~done, infos

    def _count(self, infos: dict[str, Any], executed: np.ndarray) -> dict[str, Any]:
        decisions = np.array([world.steps for world in self.envs], np.float64)
        return {**infos, "executed": executed, "scores": {**infos["scores"], "decisions": decisions}}


@dataclass(frozen=True)
class CraftSkillSim(CraftSim):
    """`CraftSim` whose actions are skills: one for each item, which collects or makes it (`run_skill`).

    Observations, reward and scores are those of `CraftSim`, a decision later where its skill has ended; `decisions` is
    a score too.

    Args:
        skill_steps: decisions after which a skill ends at the latest.
    """

    skill_steps: int = 20

    name = "craft_skills"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, "sim", skill_steps=self.skill_steps)

    @property
    def skills(self) -> list[str]:
        """What each skill does, in words."""
        materials = len(self.tree.counts)
        verbs = ["collect" if number < materials else "make" for number in range(len(self.items))]
        return [f"{verb} {name.replace('_', ' ')}" for verb, name in zip(verbs, self.items)]

    def make(self, num_envs: int) -> SkillVectorEnv:
        return SkillVectorEnv([self.make_world() for _ in range(num_envs)], self.subgoals, self.skill_steps)

    def sizes(self) -> dict[str, Any]:
        return {**super().sizes(), "actions": len(self.items)}

    def contract(self) -> dict[str, Any]:
        return {**super().contract(), "skill_steps": self.skill_steps}

    def expert(self, env: CraftVectorEnv) -> np.ndarray:
        """The skill, int64 [n], of what the target still lacks first."""
        target = self.items.index(self.target)
        return np.array([find_lack(world, target) for world in env.envs])


def describe_stock(world: CraftWorld) -> str:
    """What the agent holds, which materials are left and what the task is, in words; not where anything lies."""
    stock = ", ".join(f"{number} {name}" for name, number in zip(world.items, world.held) if number)
    left = ", ".join(name for number, name in enumerate(world.materials) if world.nearest(number) is not None)
    text = f"You hold {stock or 'nothing'}. There is {left or 'nothing'} to collect. Your task: {world.target}."
    return text.replace("_", " ")
