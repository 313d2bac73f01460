"""Houses: rooms that doors connect, furniture, things that lie around, and what is locked up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

ROOMS = ("kitchen", "hall", "cellar", "attic", "garden", "study", "porch", "library")
FURNITURE = ("table", "shelf", "desk", "bed", "stove", "sofa", "bench", "wardrobe")
THINGS = ("apple", "book", "lamp", "cup", "hat", "coin", "ring", "candle", "spoon", "map")
BOX, KEY = "box", "key"
"""The locked box and what opens it."""


@dataclass(frozen=True)
class HousePlan:
    """A house and an errand in it: put `item` on `target`.

    Args:
        doors: the rooms that can be reached from each room.
        places: the room of each piece of furniture, each thing, the box and the key.
        item: thing to be moved; it is in the box where there is one.
        target: piece of furniture.
        start: room of the agent.
        locked: whether there is a box.
    """

    doors: dict[str, tuple[str, ...]] = field(hash=False)
    places: dict[str, str] = field(hash=False)
    item: str
    target: str
    start: str
    locked: bool

    def next_room(self, here: str, goal: str) -> str:
        """The first room on a shortest way; of several the one whose name comes first."""
        before, queue = {goal: goal}, deque([goal])
        while queue:  # from the goal, so that the predecessor of `here` is the next room
            room = queue.popleft()
            for other in sorted(self.doors[room]):
                if other not in before:
                    before[other] = room
                    queue.append(other)
        return before[here]


def draw_layout(
    rng: np.random.Generator, rooms: int, furniture: int, things: int, items: int, targets: int, locked: bool
) -> HousePlan | None:
    """Draw a house whose doors are a random tree and two more doors.

    Args:
        rng: of the draw.
        rooms: how many of `ROOMS` there are.
        furniture: how many of `FURNITURE`.
        things: how many of `THINGS`.
        items: of the things, how many may have to be moved.
        targets: of the furniture, on how much it may have to be put.
        locked: whether the thing is in a locked box, whose key lies in another room.

    Returns:
        The house; None where the thing is in the target's room at the start, or the key in the box's.
    """
    names = [str(name) for name in rng.permutation(ROOMS[:rooms])]
    pairs = {(names[int(rng.integers(i))], names[i]) for i in range(1, rooms)}
    for _ in range(2):
        one, other = (names[int(i)] for i in rng.choice(rooms, size=2, replace=False))
        pairs |= {(one, other)} if (other, one) not in pairs else set()
    doors = {room: tuple(sorted({b for a, b in pairs if a == room} | {a for a, b in pairs if b == room}))
             for room in names}  # fmt: skip
    everything = (*FURNITURE[:furniture], *THINGS[:things], *((BOX, KEY) if locked else ()))
    places = {name: names[int(rng.integers(rooms))] for name in everything}
    item, target = THINGS[int(rng.integers(items))], FURNITURE[int(rng.integers(targets))]
    if locked:
        places[item] = places[BOX]
    if places[item] == places[target] or (locked and places[KEY] == places[BOX]):
        return None
    return HousePlan(doors, places, item, target, names[0], locked)
