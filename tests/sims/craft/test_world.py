"""The crafting world step by step, its expert against a search over all actions, seeds, and saved worlds."""

import numpy as np
import pytest
import torch

from sims.craft.expert import choose_action, count_steps
from sims.craft.world import CraftWorld
from sims.task import SimTask, split_of
from tests.sims.craft.worlds import default, tiny

UP, DOWN, LEFT, RIGHT, COLLECT, PLANK, TABLE = range(7)
LOG, STONE = 0, 1


def place(world: CraftWorld) -> None:
    """The agent in the middle; logs above, to the upper left and to the left of it, a stone below."""
    world.reset(0)
    world.fields[:] = [[LOG, LOG, -1], [LOG, -1, -1], [-1, STONE, -1]]
    world.row = world.column = 1


def test_a_whole_episode_by_hand():
    world = tiny().make_world()
    place(world)
    # ways in thirds of the side: the upper log is first of two at distance 1; then 4 items, none held
    assert world.observe() == pytest.approx([1, 0, -1 / 3, 0, 1, 0, 1 / 3, 0, 0, 0, 0, 0])
    played = [
        (COLLECT, {}),  # nothing lies here
        (PLANK, {}),  # and no log is held
        (UP, {}),
        (COLLECT, {"log": 1}),
        (UP, {"log": 1}),  # against the edge
        (LEFT, {"log": 1}),
        (COLLECT, {"log": 2}),
        (PLANK, {"log": 1, "plank": 2}),
        (TABLE, {"log": 1, "plank": 2}),  # takes three planks
        (PLANK, {"plank": 4}),
        (RIGHT, {"plank": 4}),
        (DOWN, {"plank": 4}),
        (DOWN, {"plank": 4}),
        (COLLECT, {"plank": 4}),  # the stone takes a table
        (TABLE, {"plank": 1, "table": 1}),
    ]
    for action, held in played:
        assert world.step(action) == 0 and not world.done
        assert world.named_state()["held"] == held
    # one log is left, 1 row up and 1 column left of the stone
    assert world.observe() == pytest.approx([1, 0, -1 / 3, -1 / 3, 1, 1, 0, 0, 0, 0, 0.2, 0.2])
    assert world.step(COLLECT) == 1 and world.done
    assert world.named_state() == {
        "agent": {"row": 2, "column": 1},
        "held": {"plank": 1, "table": 1, "stone": 1},
        "had": ["log", "stone", "plank", "table"],
        "objects": [{"name": "log", "row": 1, "column": 0}],
        "target": "stone",
        "steps_left": 24,
    }


def test_captions():
    world = tiny().make_world()
    place(world)
    assert world.caption() == (
        "You stand in row 2, column 2 of 3 x 3 fields and hold nothing. The nearest log is 1 up; the nearest stone is "
        "1 down. Your task: stone."
    )
    world.fields[:] = -1
    world.fields[0, 1] = LOG
    for action in (UP, COLLECT):
        caption = world.caption()
        world.step(action)
    assert "The nearest log is under you; no stone is left" in caption
    assert "hold 1 log. No log is left" in world.caption()
    env = tiny().make(2)
    env.reset(seed=[1, 2])
    assert [caption.partition(" of ")[0] for caption in env.captions()] == [
        f"You stand in row {each.row + 1}, column {each.column + 1}" for each in env.envs
    ]


def shortest(world: CraftWorld, seed: int) -> int:
    """Fewest actions to the target, by a search over states that plays all actions."""
    names = ("fields", "held", "had")

    def read() -> tuple:
        return (world.row, world.column, *(getattr(world, name).tobytes() for name in names))

    world.reset(seed)
    start = (world.row, world.column, *(getattr(world, name).copy() for name in names))
    seen, layer = {read()}, [start]
    for depth in range(1, 60):
        following = []
        for row, column, fields, held, had in layer:
            for action in range(7):
                world.row, world.column = row, column
                world.fields, world.held, world.had = fields.copy(), held.copy(), had.copy()
                world.step(action)
                if world.done:
                    return depth
                if (key := read()) not in seen:
                    seen.add(key)
                    following.append((world.row, world.column, world.fields, world.held, world.had))
        layer = following
    raise AssertionError("the target is out of reach")


@pytest.mark.parametrize("seed", [0, 3])
def test_the_expert_is_near_the_shortest_way_of_a_search(seed):
    world = tiny().make_world()
    fewest = shortest(world, seed)
    world.reset(seed)
    steps = count_steps(world)
    assert fewest <= steps <= fewest + 4


def test_floor_and_ceiling():
    """The expert makes the target of every seed; of random actions none does, and few make a table."""
    sim = default()
    env, rng = sim.make(32), np.random.default_rng(0)
    seeds = [SimTask(sim).on("held_out")[index].info["seed"] for index in range(32)]
    for act, low, high in ((lambda: sim.expert(env), 1, 1), (lambda: rng.integers(13, size=32), 0, 0.05)):
        env.reset(seed=seeds)
        while not env.over.all():
            *_, infos = env.step(act())
        scores = infos["scores"]
        assert low <= scores["success"].mean() <= high
        assert (scores["success"] == scores["skill/stone_pickaxe"]).all() and scores["skill/wood"].mean() > 0.5
        assert (scores["skill/iron"] == 0).all()


def test_demonstrations_are_the_expert_s_episodes():
    sim = tiny()
    demonstrations = sim.demonstrate([4, 6])
    env = sim.make(2)
    seen, _ = env.reset(seed=[4, 6])
    for i, decisions in enumerate(demonstrations):
        world = sim.make_world()
        world.reset([4, 6][i])
        assert (decisions[0][0]["state"] == seen[i]).all()
        for observation, action in decisions:
            assert action == choose_action(world) and (observation["state"] == world.observe()).all()
            world.step(action)
        assert world.done


def test_a_seed_is_a_world_and_the_splits_share_none():
    sim = default()
    one, other = sim.make(3), sim.make(1)
    first, _ = one.reset(seed=[7, 8, 7])
    assert (first[0] == first[2]).all() and (first[0] != first[1]).any()
    one.step([4, 4, 4])
    again, _ = one.reset(seed=[0, 7, 0], options={"reset_mask": np.array([False, True, False])})
    assert (again[1] == first[0]).all() and (other.reset(seed=[7])[0][0] == first[0]).all()
    counts = [(one.envs[0].fields == number).sum() for number in range(3)]
    assert counts == [9, 5, 2] and one.envs[0].fields[one.envs[0].row, one.envs[0].column] == -1
    task = SimTask(sim, 50)
    seeds = {split: {task.on(split)[index].info["seed"] for index in range(50)} for split in ("train", "held_out")}
    assert not seeds["train"] & seeds["held_out"]
    assert {split_of(seed) for seed in seeds["held_out"]} == {"held_out"}


def test_a_world_that_ended_keeps_still_and_a_saved_one_goes_on():
    env, other = tiny(max_steps=6).make(2), tiny(max_steps=6).make(2)
    rng = np.random.default_rng(0)
    env.reset(seed=[1, 2])
    for _ in range(3):
        env.step(rng.integers(5, size=2))
    state = env.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    other.load_state_dict(state)
    for step in range(4, 9):
        actions = rng.integers(5, size=2)
        results = [each.step(actions) for each in (env, other)]
        for first, second in zip(results[0][:4], results[1][:4]):
            assert (first == second).all()
        assert results[0][3].all() == (step >= 6) and not results[0][2].any()
    assert [world.steps for world in env.envs] == [6, 6]


def test_what_an_item_took_is_told():
    sim = tiny()
    env = sim.make(1)
    env.reset(seed=[0])
    place(env.envs[0])
    for action in (UP, COLLECT, LEFT, COLLECT, PLANK):
        _, _, _, _, infos = env.step([action])
    assert infos["gained"].tolist() == [2] and infos["ingredients"].tolist() == [[1, 0, 0, 0]]
    assert infos["held"].tolist() == [[1, 0, 2, 0]] and not infos["tools"].any()
    _, _, _, _, infos = env.step([UP])
    assert infos["gained"].tolist() == [-1] and not infos["ingredients"].any()
    for action in (PLANK, TABLE, DOWN, DOWN, RIGHT, COLLECT):
        _, _, done, _, infos = env.step([action])
    assert done[0] and infos["gained"].tolist() == [1] and infos["tools"].tolist() == [[False, False, False, True]]


def test_sizes_are_those_of_the_spaces():
    for subgoals in (False, True):
        sim = default(subgoals=subgoals)
        env, sizes = sim.make(1), sim.sizes()
        seen, _ = env.reset(seed=[0])
        assert seen.shape[1:] == env.single_observation_space.shape == (sizes["observation_dims"],)
        assert env.single_action_space.n == sizes["actions"] == 13 and sizes["items"] == 11
        assert not seen[:, 23:].any() and seen.shape[1] == (34 if subgoals else 23)
