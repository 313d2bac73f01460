"""Errands in a house: find a thing, take it and put it on a piece of furniture, among many actions of no use."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_fraction, check_interval
from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.environment import TextEnvironmentTask
from tasks.house.character import answer_question
from tasks.house.layout import BOX, FURNITURE, KEY, ROOMS, THINGS, HousePlan, draw_layout

IDLE = ("look at", "smell", "push", "shake", "wipe", "listen to", "kick", "lick")
"""What can be done to everything that is seen, and changes nothing."""


@dataclass(frozen=True, kw_only=True)
class House(TextEnvironmentTask):
    """Errands in a house: the reward is 1 when the thing that the task names is on the furniture that it names.

    Everything in the room can be looked at, smelled and so on, so that a room of six things has more than 50 admissible
    actions, of which the task needs about three at a time: a door, the thing, the furniture.

    Args:
        rooms: 2 to 8.
        furniture: pieces in the house, each at a random place.
        things: that lie around.
        items: of the things, how many a task may name.
        targets: of the furniture, how much a task may name.
        idle: actions of no use for everything that is seen, 0 to 8.
        locked: whether the thing is in a locked box, whose key lies in another room.
        subgoal_reward: of taking the thing for the first time, and of opening the box.
    """

    name = "house"
    rooms: int = 4
    furniture: int = 8
    things: int = 10
    items: int = 10
    targets: int = 8
    idle: int = 8
    locked: bool = False
    subgoal_reward: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("rooms", len(ROOMS)), ("furniture", len(FURNITURE)), ("things", len(THINGS))):
            check_interval("task 'house':", f"[{2 if name == 'rooms' else 1}, {most}]", **{name: getattr(self, name)})
        check_interval("task 'house':", f"[1, {self.things}]", items=self.items)
        check_interval("task 'house':", f"[1, {self.furniture}]", targets=self.targets)
        check_interval("task 'house':", f"[0, {len(IDLE)}]", idle=self.idle)
        check_fraction("task 'house':", subgoal_reward=self.subgoal_reward)

    def draw(self, rng: np.random.Generator) -> HousePlan | None:
        return draw_layout(rng, self.rooms, self.furniture, self.things, self.items, self.targets, self.locked)

    def split_key(self, problem: HousePlan) -> str:
        return repr(problem)

    def explain(self, problem: HousePlan) -> str:
        return f"Put the {problem.item} on the {problem.target}."

    def make_environment(self) -> HouseEnvironment:
        return HouseEnvironment(self)

    def ask_character(self, prompt: Prompt, question: str) -> str:
        """What the housekeeper, who knows the house of a prompt, answers to a question."""
        return answer_question(prompt.info["problem"], question)


class HouseEnvironment(TextEnvironment):
    """One agent in one house.

    Scores: exact (1 if the thing is on the furniture).

    Args:
        task: that the houses are of.
    """

    def __init__(self, task: House):
        self.task = task

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.layout: HousePlan = prompt.info["problem"]
        self.room, self.carried, self.on = self.layout.start, list[str](), dict[str, str]()
        self.places = dict(self.layout.places)
        self.opened, self.rewarded = not self.layout.locked, set[str]()
        return self._observe("")

    def apply(self, action: str) -> TextStep:
        if action not in self.admissible:
            return self._observe("You cannot do that.", valid=False)
        words = action.split()
        if match := re.fullmatch(r"go to the (\w+)", action):
            self.room = match[1]
            return self._observe("")
        if match := re.fullmatch(r"take the (\w+)", action):
            self.carried.append(match[1])
            self.on.pop(match[1], None)
            return self._observe(f"You take the {match[1]}.", self._subgoal("item", match[1] == self.layout.item))
        if match := re.fullmatch(r"put the (\w+) on the (\w+)", action):
            self.carried.remove(match[1])
            self.places[match[1]], self.on[match[1]] = self.room, match[2]
            return self._observe(f"You put the {match[1]} on the {match[2]}.")
        if words[0] == "open":
            self.opened = True
            return self._observe(f"You open the {BOX} with the {KEY}.", self._subgoal("box", True))
        return self._observe("Nothing happens.")

    def expert_action(self) -> str:
        layout = self.layout
        if layout.item in self.carried:
            goal, action = layout.places[layout.target], f"put the {layout.item} on the {layout.target}"
        elif self.opened:
            goal, action = self.places[layout.item], f"take the {layout.item}"
        elif KEY in self.carried:
            goal, action = layout.places[BOX], f"open the {BOX} with the {KEY}"
        else:
            goal, action = self.places[KEY], f"take the {KEY}"
        return action if self.room == goal else f"go to the {layout.next_room(self.room, goal)}"

    def random_action(self, rng: np.random.Generator) -> str:
        return self.admissible[int(rng.integers(len(self.admissible)))]

    def _subgoal(self, name: str, reached: bool) -> float:
        """The reward of a subgoal, which is paid once."""
        first = reached and name not in self.rewarded
        self.rewarded |= {name} if reached else set()
        return self.task.subgoal_reward if first else 0.0

    def _visible(self) -> tuple[list[str], list[str]]:
        """Furniture and box, and things, in the room."""
        shut = {self.layout.item} if not self.opened else set()
        names = [name for name, room in self.places.items() if room == self.room and name not in {*self.carried, *shut}]
        fixed = [name for name in names if name in FURNITURE or name == BOX]
        return fixed, [name for name in names if name not in fixed]

    def _list_actions(self) -> tuple[str, ...]:
        fixed, loose = self._visible()
        actions = [f"go to the {room}" for room in self.layout.doors[self.room]]
        actions += [f"take the {name}" for name in loose]
        actions += [f"put the {name} on the {place}" for name in self.carried for place in fixed if place != BOX]
        if BOX in fixed and KEY in self.carried and not self.opened:
            actions.append(f"open the {BOX} with the {KEY}")
        everything = (*fixed, *loose, *self.carried, self.room)
        return tuple(actions + [f"{verb} the {name}" for name in everything for verb in IDLE[: self.task.idle]])

    def _observe(self, event: str, reward: float = 0.0, valid: bool = True) -> TextStep:
        fixed, loose = self._visible()
        solved = self.on.get(self.layout.item) == self.layout.target
        loose = [f"{name} on the {self.on[name]}" if name in self.on else name for name in loose]
        lines = [event, f"You are in the {self.room}."] if event else [f"You are in the {self.room}."]
        lines.append(f"You see {_list(fixed + loose)}.")
        if BOX in fixed:
            lines.append(f"The {BOX} is {'open' if self.opened else 'locked'}.")
        lines += [f"You have {_list(self.carried)}.", f"Doors lead to {_list(self.layout.doors[self.room])}.", ">"]
        self.admissible = self._list_actions()
        return TextStep(
            "\n" + "\n".join(lines),
            reward=reward + solved,
            terminated=solved,
            valid=valid,
            scores={"exact": float(solved)},
            admissible_actions=self.admissible,
        )


def _list(names: list[str] | tuple[str, ...]) -> str:
    """Names in words: the apple, the book and the lamp; nothing where there are none."""
    texts = [f"the {name}" for name in names]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts) or "nothing"
