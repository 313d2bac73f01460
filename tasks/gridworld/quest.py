"""Gridworld with rewards on the way: each key that is taken and each door that is opened pays once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmrl.core.text_environment import TextStep
from mmrl.core.types import Prompt
from tasks.gridworld.layout import KEYS
from tasks.gridworld.task import GridEnvironment, GridWorld


@dataclass(frozen=True)
class GridQuest(GridWorld):
    """Gridworld whose subgoals are rewarded in the turn that reaches them, beside the goal.

    A quest of `doors` doors has 2 doors + 1 rewards: its keys, its doors and the goal, as the dense turn rewards of
    A Practitioner's Guide to Multi-turn Agentic Reinforcement Learning, 2025, arXiv:2510.01132.

    Args:
        subgoal_reward: of a key that is taken and of a door that is walked through for the first time; 0 leaves the
            reward of the goal alone.
    """

    subgoal_reward: float = 0.2

    def make_environment(self) -> QuestEnvironment:
        return QuestEnvironment(self, self.subgoal_reward)


class QuestEnvironment(GridEnvironment):
    """One agent on one layout, which is paid for keys and doors.

    Args:
        task: that the layouts are of.
        subgoal_reward: of each key and door.
    """

    def __init__(self, task: GridWorld, subgoal_reward: float):
        super().__init__(task)
        self.subgoal_reward = subgoal_reward

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.opened: set[str] = set()
        return super().start(prompt, seed)

    def apply(self, action: str) -> TextStep:
        keys, opened = self.state.keys, set(self.opened)
        step = super().apply(action)
        row, column = self.state.cell
        mark = self.layout.lines[row][column]
        self.opened |= {mark} if mark in KEYS.upper() else set()
        reached = len(self.state.keys - keys) + len(self.opened - opened)
        return replace(step, reward=step.reward + self.subgoal_reward * reached)
