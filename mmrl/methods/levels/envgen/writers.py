"""EnvGen's writers: who configures the worlds, from what the agent can do in the original one.

EnvGen, 2024, arXiv:2403.12014, section 2.

- what a writer reads: `SkillFeedback`
- the preconditions of the weakest skills as the stock: `RuleWriter`
- a language model behind OpenAI's interface: `ModelWorldWriter`
- configurations in an answer: `read_configurations`
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mmrl.methods.levels.envgen.score import SkillSuccess
from mmrl.tools.programs.writers import ChatWriter

_LIST = re.compile(r"\[.*\]", re.DOTALL)


@dataclass(frozen=True)
class SkillFeedback:
    """Input of a writer: the game, what can be configured, and the success of each skill.

    Args:
        items: names of the items, each of which is a skill.
        needs: ingredients int [I, I] and tools bool [I, I] of every item.
        target: the item that ends an episode, with which none may begin.
        settings: what a configuration may say, one line each.
        count: configurations that are wanted.
        success: of each skill in the original world, by item; empty before the first cycle.
        previous: the configurations of the cycle before.
        refused: why configurations of the answer before cannot be used.
        number: answers that were written before.
    """

    items: Sequence[str]
    needs: tuple[np.ndarray, np.ndarray]
    target: str
    settings: Sequence[str]
    count: int
    success: Mapping[str, SkillSuccess] = field(default_factory=dict)
    previous: Sequence[Mapping[str, Any]] = ()
    refused: Sequence[str] = ()
    number: int = 0


@runtime_checkable
class WorldWriter(Protocol):
    """Writes configurations of worlds."""

    def write_worlds(self, feedback: SkillFeedback) -> str:
        """An answer with a JSON list of configurations in it."""


class RuleWriter:
    """Episodes begin with what the weakest skills take: one configuration for each of the weakest.

    Skills are in the order of their success; equal ones in the order of how many others they are built on. Skills that
    take nothing are left out.

    Args:
        rarity: of all materials in the worlds.
    """

    def __init__(self, rarity: str = "common"):
        self.rarity = rarity

    def write_worlds(self, feedback: SkillFeedback) -> str:
        ingredients, tools = feedback.needs
        depths = count_depths(ingredients, tools)
        skills = [k for k in range(len(feedback.items)) if depths[k]]
        rates = {k: feedback.success.get(feedback.items[k], SkillSuccess()).rate for k in skills}
        weakest = sorted(skills, key=lambda k: (rates[k], depths[k], k))[: feedback.count]
        worlds = []
        for k in weakest:
            pieces = np.maximum(ingredients[k], tools[k])
            stock = {feedback.items[i]: int(pieces[i]) for i in np.flatnonzero(pieces)}
            materials = [] if self.rarity == "common" else np.flatnonzero(~ingredients.any(1)).tolist()
            rarity = {feedback.items[i]: self.rarity for i in materials}
            worlds.append({"rarity": rarity, "inventory": stock})
        return json.dumps([worlds[i % len(worlds)] for i in range(feedback.count)])


def count_depths(ingredients: np.ndarray, tools: np.ndarray) -> list[int]:
    """Length of the longest chain of items that each item is built on, [I]; 0 of an item that takes nothing."""
    needs = [np.flatnonzero((ingredients[k] > 0) | tools[k]).tolist() for k in range(len(ingredients))]
    depths = [0] * len(needs)
    for _ in needs:  # a chain has at most I items
        depths = [max((depths[i] + 1 for i in needs[k]), default=0) for k in range(len(needs))]
    return depths


class ModelWorldWriter(ChatWriter):
    """A language model behind OpenAI's interface configures the worlds; `mmrl serve` puts a local one behind it.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        temperature: of the model's sampling.
        connection: further options of `ChatWriter`.
    """

    place = "rollout.writer"

    def __init__(self, url: str, model: str, temperature: float = 0.7, **connection: Any):
        super().__init__(url, model, temperature, **connection)

    def write_worlds(self, feedback: SkillFeedback) -> str:
        return self.write([{"role": "user", "content": ask_for_worlds(feedback)}], feedback.number)


def ask_for_worlds(feedback: SkillFeedback) -> str:
    """The question to a language model: the game, what can be configured, what the agent can do, what was refused."""
    rules = [describe_item(feedback, k) for k in range(len(feedback.items))]
    parts = [
        "An agent learns a crafting game on a grid. Its skills, each to have one item:\n" + "\n".join(rules),
        f"Configure {feedback.count} worlds in which it can practise the skills that it lacks. A configuration is a "
        "JSON object with these settings, all of which may be left out:\n" + "\n".join(feedback.settings),
    ]
    if feedback.success:
        rates = [
            f"{name}: {100 * each.rate:.1f}% +- {100 * each.error:.1f}%" for name, each in feedback.success.items()
        ]
        parts.append("Success of the agent in the original world:\n" + "\n".join(rates))
    if feedback.previous:
        parts.append(f"The configurations before:\n{json.dumps(list(feedback.previous))}\nImprove them.")
    if feedback.refused:
        parts.append("These configurations of your last answer cannot be used:\n" + "\n".join(feedback.refused))
    parts.append(
        f'Answer with a JSON list of {feedback.count} objects alone, as [{{"rarity": {{}}, "inventory": {{}}}}].'
    )
    return "\n\n".join(parts)


def describe_item(feedback: SkillFeedback, k: int) -> str:
    """What item k takes, in words."""
    ingredients, tools = feedback.needs[0][k], feedback.needs[1][k]
    uses = [f"{ingredients[i]} {feedback.items[i]}" for i in np.flatnonzero(ingredients)]
    holds = [feedback.items[i] for i in np.flatnonzero(tools)]
    text = f"uses up {' and '.join(uses)}" if uses else "is collected"
    return f"- {feedback.items[k]} {text}" + (f", with {' and '.join(holds)} in hand" if holds else "")


def read_configurations(
    answer: str, count: int, check: Callable[[Any], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The usable configurations of an answer, at most `count`, and for each other one why it is refused.

    Args:
        answer: with a JSON list in it.
        count: configurations that are wanted.
        check: raises a ValueError that says what is wrong with one.
    """
    try:
        worlds = json.loads(match.group()) if (match := _LIST.search(answer)) else None
    except (ValueError, RecursionError) as error:
        return [], [f"the list is no JSON: {error}"]
    if not isinstance(worlds, list):
        return [], [f"there is no list in {answer[:80]!r}"]
    usable: list[dict[str, Any]] = []
    refused = []
    for number, world in enumerate(worlds[:count], 1):
        try:
            check(world)
            usable.append(world)
        except ValueError as error:
            refused.append(f"{number}: {error}")
    refused += [f"{number}: missing" for number in range(len(worlds) + 1, count + 1)]
    return usable, refused
