"""RL-GPT's agents as scripts: programs that a person wrote, and a rule that hands to code what is not learned.

RL-GPT, 2024, arXiv:2402.19299, section 3.
"""

from __future__ import annotations

import re

from mmrl.core.errors import check_fraction
from mmrl.methods.exploration.rl_gpt.agents import RoundFeedback, SubAction, write_split

COLLECT = """\
def act(state):
    places = [each for each in state["objects"] if each["name"] == {item!r}]
    if not places:
        return []
    row, column = state[{agent!r}]["row"], state[{agent!r}]["column"]
    nearest = min(places, key=lambda each: abs(each["row"] - row) + abs(each["column"] - column))
    rows, columns = nearest["row"] - row, nearest["column"] - column
    walk = ["down" if rows > 0 else "up"] * abs(rows) + ["right" if columns > 0 else "left"] * abs(columns)
    return walk + ["collect"]
"""
MAKE = """\
RECIPES = {recipes!r}


def act(state):
    inventory, actions = dict(state["held"]), []

    def have(item, count):
        while inventory.get(item, 0) < count:
            if item not in RECIPES:
                return False
            parts, tools, makes = RECIPES[item]
            if not all(have(tool, 1) for tool in tools):
                return False
            while any(inventory.get(part, 0) < amount for part, amount in parts.items()):
                if not all(have(part, amount) for part, amount in parts.items()):
                    return False
            for part, amount in parts.items():
                inventory[part] -= amount
            inventory[item] = inventory.get(item, 0) + makes
            actions.append("make " + item)
        return True

    return actions if have({item!r}, inventory.get({item!r}, 0) + 1) else []
"""
WANDER = """\
def act(state):
    return ["up"] * 20
"""
_ADVICE = re.compile(r"code (\w+)")


class ScriptedAgents:
    """Collecting is coded from the start, and making an item when the critic finds that too few episodes have it.

    The first program of the first material reads an entry that states do not have; the second one, which is written
    after an error, does not. The macro-action `wander` walks up and helps nothing.

    Args:
        least: share of the episodes with an item below which the critic has its making coded: the first such item on
            the way to the target.
        broken: whether the first program is broken at first.
        useless: whether there is a macro-action without a use.
    """

    def __init__(self, least: float = 0.5, broken: bool = True, useless: bool = True):
        check_fraction("rollout.agents", least=least)
        self.least, self.broken, self.useless = least, broken, useless

    def split_task(self, feedback: RoundFeedback) -> str:
        coded = {each.name for each in feedback.split if each.codable}
        coded |= {f"make_{item}" for item in _ADVICE.findall(feedback.advice)}
        split = []
        for item in order_items(feedback):
            if is_material(feedback, item):
                split.append(SubAction(f"collect_{item}", f"walk to the nearest {item} and collect it", True))
            else:
                name = f"make_{item}"
                split.append(SubAction(name, f"make a {item} of what is held", name in coded))
        if self.useless:
            split.append(SubAction("wander", "walk up", True))
        return write_split(split)

    def write_program(
        self, action: SubAction, feedback: RoundFeedback, program: str | None, problem: str | None
    ) -> str:
        if action.name == "wander":
            return _fence(WANDER)
        verb, _, item = action.name.partition("_")
        if verb == "make":
            return _fence(MAKE.format(recipes=list_recipes(feedback), item=item))
        first = next(each for each in order_items(feedback) if is_material(feedback, each))
        wrong = self.broken and item == first and problem is None
        return _fence(COLLECT.format(item=item, agent="player" if wrong else "agent"))

    def criticise(self, feedback: RoundFeedback) -> str:
        coded = {each.name for each in feedback.split if each.codable}
        for item in order_items(feedback):
            rate = feedback.success.get(item, 0.0)
            if rate < self.least and not is_material(feedback, item) and f"make_{item}" not in coded:
                return f"{item} was had in {100 * rate:.0f}% of the episodes: code {item}"
        return "keep the split"


def is_material(feedback: RoundFeedback, item: str) -> bool:
    """Whether an item is collected; others are made by an action of their own."""
    return f"make {item}" not in feedback.actions


def order_items(feedback: RoundFeedback) -> list[str]:
    """The items on the way to the target, each after what it takes; the target is the last one."""
    order: list[str] = []

    def visit(k: int) -> None:
        if feedback.items[k] not in order:
            for part in ((feedback.needs[0][k] > 0) | feedback.needs[1][k]).nonzero()[0]:
                visit(int(part))
            order.append(feedback.items[k])

    visit(list(feedback.items).index(feedback.target))
    return order


def list_recipes(feedback: RoundFeedback) -> dict[str, tuple[dict[str, int], list[str], int]]:
    """Ingredients, tools and pieces of what is made on the way to the target, by item."""
    recipes = {}
    for name in order_items(feedback):
        if not is_material(feedback, name):
            k = list(feedback.items).index(name)
            ingredients, tools = feedback.needs[0][k], feedback.needs[1][k]
            parts = {feedback.items[i]: int(ingredients[i]) for i in ingredients.nonzero()[0]}
            recipes[name] = parts, [feedback.items[i] for i in tools.nonzero()[0]], int(feedback.makes[k])
    return recipes


def _fence(program: str) -> str:
    return f"```python\n{program}```"
