"""RL-GPT's agents: what is coded and what is learned, the programs, and the critique of both.

RL-GPT, 2024, arXiv:2402.19299, section 3.

- inputs of the agents: `RoundFeedback`, `MacroUse`
- a piece of the task: `SubAction`, `read_split`
- the interface: `MacroAgents`
- language models: `LanguageAgents`
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mmrl.tools.programs.program import MODULES
from mmrl.tools.programs.writers import build_writer

_LIST = re.compile(r"\[.*\]", re.DOTALL)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class SubAction:
    """A piece of the task.

    Args:
        name: lower-case letters, digits and underscores.
        task: what it does, in words.
        codable: whether a program does it; else the policy learns it from primitive actions.
    """

    name: str
    task: str
    codable: bool


@dataclass(frozen=True)
class MacroUse:
    """Use of a macro-action in the episodes of a round: share of the decisions, mean steps, errors of its program."""

    share: float
    steps: float
    errors: Sequence[str] = ()


@dataclass(frozen=True)
class RoundFeedback:
    """Input of the agents.

    Args:
        items: names of the items of the game.
        needs: ingredients int [I, I] and tools bool [I, I] of every item.
        makes: pieces that making an item gives, int [I].
        target: the item that ends an episode.
        actions: names of the primitive actions.
        state: a named state, as programs read it.
        slots: most macro-actions.
        macro_steps: steps after which a macro-action ends at the latest.
        success: share of the episodes of the round before in which each item was had; empty before the first.
        uses: of the macro-actions in the round before, by name.
        split: the sub-actions of the round before.
        advice: of the critic.
        refused: why the answer before cannot be used.
        number: answers that were written before.
    """

    items: Sequence[str]
    needs: tuple[np.ndarray, np.ndarray]
    makes: np.ndarray
    target: str
    actions: Sequence[str]
    state: Mapping[str, Any]
    slots: int
    macro_steps: int
    success: Mapping[str, float] = field(default_factory=dict)
    uses: Mapping[str, MacroUse] = field(default_factory=dict)
    split: Sequence[SubAction] = ()
    advice: str = ""
    refused: Sequence[str] = ()
    number: int = 0


@runtime_checkable
class MacroAgents(Protocol):
    """The three agents: each gives an answer as a text."""

    def split_task(self, feedback: RoundFeedback) -> str:
        """Slow agent: a JSON list of sub-actions with `name`, `task` and `codable`."""

    def write_program(
        self, action: SubAction, feedback: RoundFeedback, program: str | None, problem: str | None
    ) -> str:
        """Fast agent: a block of Python with `act(state)`; after an error with the program before and what is wrong."""

    def criticise(self, feedback: RoundFeedback) -> str:
        """Critic: advice to the slow agent, from the success in the round before."""


def read_split(answer: str, slots: int) -> tuple[list[SubAction], list[str]]:
    """The usable sub-actions of an answer, and why others are refused.

    Args:
        answer: with a JSON list in it.
        slots: most codable ones.
    """
    try:
        entries = json.loads(match.group()) if (match := _LIST.search(answer)) else None
    except (ValueError, RecursionError) as error:
        return [], [f"the list is no JSON: {error}"]
    if not isinstance(entries, list):
        return [], [f"there is no list in {answer[:80]!r}"]
    split: list[SubAction] = []
    refused = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or {"name", "task", "codable"} - entry.keys():
            refused.append(f"{number}: give an object with name, task and codable, got {str(entry)[:80]}")
        elif not isinstance(entry["name"], str) or not _NAME.fullmatch(entry["name"]):
            refused.append(f"{number}: name: lower-case letters, digits and underscores, got {str(entry['name'])[:80]}")
        elif entry["name"] in {each.name for each in split}:
            refused.append(f"{number}: name: {entry['name']} is there already")
        elif type(entry["codable"]) is not bool:
            refused.append(f"{number}: codable: true or false, got {str(entry['codable'])[:80]}")
        elif entry["codable"] and sum(each.codable for each in split) == slots:
            refused.append(f"{number}: {entry['name']}: there is room for {slots} programs, and it would be one more")
        else:
            split.append(SubAction(entry["name"], str(entry["task"]), entry["codable"]))
    return split, refused


class LanguageAgents:
    """A language model in the roles of all three agents.

    Args:
        writer: of the answers, as of written rewards: `url` and `model` (a server with OpenAI's interface; `mmrl serve`
            puts a local model behind it), or `files`, answers that are given in their order.
    """

    def __init__(self, writer: Mapping[str, Any]):
        self.writer = build_writer(writer)

    def split_task(self, feedback: RoundFeedback) -> str:
        return self._ask(ask_for_split(feedback), feedback)

    def write_program(
        self, action: SubAction, feedback: RoundFeedback, program: str | None, problem: str | None
    ) -> str:
        return self._ask(ask_for_program(action, feedback, program, problem), feedback)

    def criticise(self, feedback: RoundFeedback) -> str:
        return self._ask(ask_for_advice(feedback), feedback)

    def _ask(self, text: str, feedback: RoundFeedback) -> str:
        return self.writer.write([{"role": "user", "content": text}], feedback.number)


def ask_for_split(feedback: RoundFeedback) -> str:
    """The question to the slow agent: the game, its last split, what came of it, and the advice."""
    parts = [
        describe_game(feedback),
        "Split the task into sub-actions. Say of each whether it is codable: a short Python function that plans "
        "primitive actions from the state can do it. The others are left to reinforcement learning, which has all "
        f"primitive actions. At most {feedback.slots} are codable.",
    ]
    if feedback.split:
        parts.append(f"Your split before: {write_split(feedback.split)}\n{describe_success(feedback)}")
    if feedback.advice:
        parts.append(f"Advice of a critic: {feedback.advice}")
    if feedback.refused:
        parts.append("These parts of your last answer cannot be used:\n" + "\n".join(feedback.refused))
    parts.append('Answer with a JSON list alone, as [{"name": "dig_hole", "task": "dig a hole", "codable": true}].')
    return "\n\n".join(parts)


def ask_for_program(action: SubAction, feedback: RoundFeedback, program: str | None, problem: str | None) -> str:
    """The question to the fast agent: the game, the sub-action, and what is wrong with its last program."""
    parts = [
        describe_game(feedback),
        f"Write a Python function act(state) for this sub-action: {action.task}. It returns the list of the names of "
        f"the primitive actions to take from now on, in their order, at most {feedback.macro_steps}; an empty list "
        f"where it is impossible. A state is\n{json.dumps(feedback.state)}\nItems that are not held are missing in "
        f"held. You may import {' and '.join(MODULES)} and nothing else. Answer with one block of Python.",
    ]
    if problem is not None:
        parts.append(f"Your program before:\n```python\n{program or ''}```\nIt cannot be used: {problem}\nMend it.")
    return "\n\n".join(parts)


def ask_for_advice(feedback: RoundFeedback) -> str:
    """The question to the critic: the game, the split, and what came of it."""
    return "\n\n".join(
        [
            describe_game(feedback),
            f"The task was split into {write_split(feedback.split)}. Programs do what is codable, and a policy learned "
            f"when to use them and all else.\n{describe_success(feedback)}",
            "Which sub-action fails? Say in two sentences what should be split further, coded, or left to learning.",
        ]
    )


def describe_game(feedback: RoundFeedback) -> str:
    """The game in words: items with what they take, primitive actions, target."""
    lines = []
    for k, name in enumerate(feedback.items):
        ingredients, tools = feedback.needs[0][k], feedback.needs[1][k]
        uses = [f"{ingredients[i]} {feedback.items[i]}" for i in np.flatnonzero(ingredients)]
        holds = [feedback.items[i] for i in np.flatnonzero(tools)]
        text = f"{name} uses up {' and '.join(uses)}" if uses else f"{name} is collected where it lies"
        lines.append(f"- {text}" + (f", with {' and '.join(holds)} in hand" if holds else ""))
    return (
        "An agent plays a crafting game on a grid. Items:\n" + "\n".join(lines) + f"\nPrimitive actions: "
        f"{', '.join(feedback.actions)}.\nThe task: have a {feedback.target}."
    )


def describe_success(feedback: RoundFeedback) -> str:
    """Success of every item and use of every macro-action in the round before, a line each."""
    lines = [f"{name} was had in {100 * rate:.0f}% of the episodes" for name, rate in feedback.success.items()]
    for name, use in feedback.uses.items():
        errors = f", failed {len(use.errors)} times: {use.errors[0]}" if use.errors else ""
        lines.append(f"{name}: {100 * use.share:.0f}% of the decisions, {use.steps:.1f} steps each{errors}")
    return "\n".join(lines)


def write_split(split: Sequence[SubAction]) -> str:
    """Sub-actions as JSON."""
    return json.dumps([{"name": each.name, "task": each.task, "codable": each.codable} for each in split])
