"""DECKARD's guides: who guesses the recipes before anything was played.

- no guesses: `BlankGuide`
- the real recipes with planted errors: `ScriptedGuide`
- a language model behind OpenAI's interface: `ModelGuide`
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.methods.goals.deckard.graph import RecipeGraph
from mmrl.tools.programs.writers import ChatWriter

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
Needs = tuple[np.ndarray, np.ndarray]
"""Ingredients int64 [I, I] and tools bool [I, I] of all items."""


@runtime_checkable
class Guide(Protocol):
    """Guesses what items take."""

    def fill(self, graph: RecipeGraph, items: Sequence[str], needs: Needs) -> None:
        """Guess recipes into an empty graph.

        Args:
            graph: of these items.
            items: their names.
            needs: the real recipes, for scripts that know them.
        """


@dataclass(frozen=True)
class BlankGuide:
    """Knows nothing: every item is guessed to take nothing, so that all are goals until experience says more."""

    def fill(self, graph: RecipeGraph, items: Sequence[str], needs: Needs) -> None:
        for item in range(len(items)):
            graph.guess(item, np.zeros(len(items), np.int64), np.zeros(len(items), bool))


@dataclass(frozen=True)
class ScriptedGuide:
    """Knows the recipes, some of them wrongly.

    In a wrong recipe one need, drawn uniformly, is another item; an item that takes nothing is guessed to take a piece
    of another one. The amount stays, and an item never is its own need.

    Args:
        wrong: share of the recipes that is wrong, rounded to whole recipes.
        seed: of what is wrong.
    """

    wrong: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        check_fraction("rollout.guide", wrong=self.wrong)

    def fill(self, graph: RecipeGraph, items: Sequence[str], needs: Needs) -> None:
        rng, count = derive_rng("deckard guide", self.seed), len(items)
        wrong = set(rng.permutation(count)[: round(self.wrong * count)].tolist())
        for item in range(count):
            ingredients, tools = needs[0][item].copy(), needs[1][item].copy()
            if item in wrong:
                item_needs = [*np.flatnonzero(tools), *np.flatnonzero(ingredients)]
                others = [other for other in range(count) if other != item and other not in item_needs]
                new = others[int(rng.integers(len(others)))]
                old = item_needs[int(rng.integers(len(item_needs)))] if item_needs else None
                if old is not None and tools[old]:
                    tools[old], tools[new] = False, True
                else:
                    ingredients[new] = 1 if old is None else ingredients[old]
                    ingredients[[] if old is None else [old]] = 0
            graph.guess(item, ingredients, tools)


class ModelGuide(ChatWriter):
    """A language model behind OpenAI's interface is asked once for all recipes, by the names of the items alone.

    Items that it does not name, or whose entry cannot be read, are guessed to take nothing; names that the world does
    not have are left out.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        temperature: of the model's sampling.
        connection: further options of `ChatWriter`.
    """

    place = "rollout.guide"

    def __init__(self, url: str, model: str, temperature: float = 0.0, **connection: Any):
        super().__init__(url, model, temperature, **connection)

    def fill(self, graph: RecipeGraph, items: Sequence[str], needs: Needs) -> None:
        question = (
            "In a crafting game with a grid an agent can collect or make these items: "
            f"{', '.join(items)}.\nFor each of them say what is used up to have one piece, with amounts, and which "
            "tools must be held. What is found in the grid uses nothing up. Answer with one JSON object alone, as "
            '{"torch": {"from": {"coal": 1, "stick": 1}, "tools": []}}.'
        )
        guesses = read_guesses(self.write([{"role": "user", "content": question}], 0), items)
        for item in range(len(items)):
            graph.guess(item, *guesses[item])


def read_guesses(answer: str, items: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ingredients [I] and tools bool [I] of every item as a language model wrote them; none where nothing is readable.

    Args:
        answer: with a JSON object by item, whose entries have "from", amounts by item, and "tools", a list.
        items: names of the world's items.
    """
    try:
        entries = json.loads(match.group()) if (match := _OBJECT.search(answer)) else {}
    except (ValueError, RecursionError):
        entries = {}
    number = {name: place for place, name in enumerate(items)}
    guesses = []
    for item, name in enumerate(items):
        entry = entries.get(name)
        entry = entry if isinstance(entry, dict) else {}
        parts, listed = entry.get("from"), entry.get("tools")
        ingredients, tools = np.zeros(len(items), np.int64), np.zeros(len(items), bool)
        for part, amount in (parts if isinstance(parts, dict) else {}).items():
            if number.get(part, item) != item and type(amount) is int and 0 < amount < 1000:
                ingredients[number[part]] = amount
        for tool in listed if isinstance(listed, list) else []:
            if isinstance(tool, str) and number.get(tool, item) != item:
                tools[number[tool]] = True
        guesses.append((ingredients, tools))
    return guesses
