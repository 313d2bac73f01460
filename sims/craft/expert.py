"""Scripted expert of the crafting world: the first thing that the target still lacks, by the shortest way."""

from __future__ import annotations

from sims.craft.world import COLLECT, CraftWorld


def find_lack(world: CraftWorld, item: int) -> int:
    """Number of the first item to have on the way to `item`: a missing tool, else a missing ingredient, else itself."""
    for tool in world.tools[item].nonzero()[0]:
        if not world.held[tool]:
            return find_lack(world, int(tool))
    for part in world.ingredients[item].nonzero()[0]:
        if world.held[part] < world.ingredients[item, part]:
            return find_lack(world, int(part))
    return item


def choose_action(world: CraftWorld) -> int:
    """The next action on the way to the target; collecting where nothing helps any more."""
    item = find_lack(world, world.items.index(world.target))
    if item >= len(world.materials):
        return COLLECT + 1 + item - len(world.materials)
    way = world.nearest(item)
    if way is None or way == (0, 0):
        return COLLECT
    rows, columns = way
    if rows:
        return 1 if rows > 0 else 0
    return 3 if columns > 0 else 2


def count_steps(world: CraftWorld) -> int | None:
    """Decisions of the expert from here to the target, which it plays; None where time is up before."""
    start = world.steps
    while not world.done:
        if world.steps >= world.max_steps:
            return None
        world.step(choose_action(world))
    return world.steps - start
