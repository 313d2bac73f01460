"""The next subgoal is shown, pays when it is met, and is followed by the next."""

import json

import numpy as np
import pytest

pytest.importorskip("minigrid")

from mmrl.core.rng import derive_rng
from sims.subgoals import SubgoalSim
from sims.subgoals.plans import ScriptedPlans, find_objects, find_plan
from sims.task import split_of
from sims.workers import WorkerSim

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
DOOR_KEY = "MiniGrid-DoorKey-5x5-v0"
VIEW = 7 * 7 * 20


def write(path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def walk_to(env, position, beside=True) -> int:
    """Turn and walk, by a search over places and directions, until the agent faces `position`; returns the steps."""
    grid = env.unwrapped
    start = (*map(int, grid.agent_pos), grid.agent_dir)
    moves, paths = [(1, 0), (0, 1), (-1, 0), (0, -1)], {start: []}
    queue = [start]
    for x, y, d in queue:
        ahead = (x + moves[d][0], y + moves[d][1])
        if (ahead if beside else (x, y)) == position:
            for action in paths[x, y, d]:
                env.step(action)
            return len(paths[x, y, d])
        cell = grid.grid.get(*ahead)
        free = cell is None or cell.can_overlap()
        for action, state in ((LEFT, (x, y, (d - 1) % 4)), (RIGHT, (x, y, (d + 1) % 4)), (FORWARD, (*ahead, d))):
            if state not in paths and (action != FORWARD or free):
                paths[state] = [*paths[x, y, d], action]
                queue.append(state)
    raise AssertionError(f"no way to {position}")


def test_bonuses_of_the_whole_way_by_hand():
    sim = SubgoalSim(DOOR_KEY, hidden=0.0, kwargs={"max_steps": 100})
    env = sim.make_env()
    env.reset(seed=2)
    key, door, goal = env.get_wrapper_attr("plan")
    kinds = [env.unwrapped.grid.get(*position).type for position in (key, door, goal)]
    assert kinds == ["key", "door", "goal"]
    # v (1 - k / T) with v = .2 and T = 100, k counted from the subgoal before
    steps = walk_to(env, key) + 1
    _, reward, *_ = env.step(PICKUP)
    assert reward == pytest.approx(0.2 * (1 - steps / 100))
    waited = walk_to(env, door) + 1
    _, reward, *_ = env.step(TOGGLE)
    assert reward == pytest.approx(0.2 * (1 - waited / 100))
    # closing and opening it again pays nothing
    for _ in range(2):
        _, reward, *_ = env.step(TOGGLE)
        assert reward == 0
    last = walk_to(env, goal) + 3
    _, reward, terminated, _, info = env.step(FORWARD)
    every = steps + waited + last
    assert terminated
    assert reward == pytest.approx(1 - 0.9 * every / 100 + 0.2 * (1 - last / 100))
    assert info["scores"] == {"success": 1, "subgoals/met": 3, "subgoals/planned": 1}


def test_the_numbers_of_the_paper_s_bonus():
    # T = 100: met after 30 steps .2 (1 - .3) = .14; met in the last step 0
    sim = SubgoalSim(DOOR_KEY, hidden=0.0, kwargs={"max_steps": 100})
    for idle, bonus in ((29, 0.14), (99, 0.0)):
        env = sim.make_env()
        env.reset(seed=2)
        key = env.get_wrapper_attr("plan")[0]
        walked = walk_to(env, key)
        for _ in range(idle - walked):
            env.step(DONE)
        assert env.step(PICKUP)[1] == pytest.approx(bonus)


def test_held_out_episodes_and_the_hidden_share_show_and_pay_nothing():
    env = SubgoalSim(DOOR_KEY, hidden=0.5).make_env()
    seeds = range(0, 400, 2)
    planned = []
    for seed in seeds:
        seen, _ = env.reset(seed=seed)
        planned.append(seen[VIEW + 4] == 1)
        assert planned[-1] == bool(env.get_wrapper_attr("plan"))
    # 200 draws: 5 standard deviations of the share are .18
    assert 0.32 < np.mean(planned) < 0.68
    assert split_of(2) == "train" and split_of(3) == "held_out"
    env.reset(seed=3)
    objects = find_objects(env.unwrapped)
    walk_to(env, next(position for position, cell in objects.items() if cell.type == "key"))
    seen, reward, *_ = env.step(PICKUP)
    assert reward == 0 and not seen[VIEW + 4 :].any()


def test_what_is_seen_of_a_subgoal():
    position, thing = (SubgoalSim(DOOR_KEY, hidden=0.0, form=form).make_env() for form in ("position", "object"))
    seen, _ = position.reset(seed=2)
    key, grid = position.get_wrapper_attr("plan")[0], position.unwrapped
    assert seen[VIEW + 4 :].tolist() == pytest.approx([1, *(np.subtract(key, grid.agent_pos) / 5)])
    seen, _ = thing.reset(seed=2)
    kind, colour, _ = thing.unwrapped.grid.get(*key).encode()
    expected = np.zeros(18)
    expected[[0, 1 + kind, 12 + colour]] = 1
    assert seen[VIEW + 4 :].tolist() == expected.tolist()
    # the view: every field has one type, one colour and one state, which MiniGrid's own encoding gives
    image = thing.unwrapped.gen_obs()["image"]
    fields = seen[:VIEW].reshape(7, 7, 20)
    assert fields.sum() == 3 * 49
    for first, size, part in ((0, 11, 0), (11, 6, 1), (17, 3, 2)):
        assert (fields[..., first : first + size].argmax(-1) == image[..., part]).all()
    assert seen[VIEW : VIEW + 4].argmax() == thing.unwrapped.agent_dir


@pytest.mark.parametrize("form", ["position", "object"])
def test_the_share_of_wrong_subgoals_is_the_one_that_is_asked_for(form):
    right = ScriptedPlans(1.0, form == "object")
    plans = ScriptedPlans(0.5, form == "object")
    env = SubgoalSim(DOOR_KEY, form=form).make_env()
    wrong = 0
    for seed in range(0, 400, 2):
        env.reset(seed=seed)
        grid = env.unwrapped
        first, second, again = (source.read(grid, seed) for source in (right, plans, plans))
        assert first == find_plan(grid) and second == again and len(second) == 3
        wrong += sum(a != b for a, b in zip(first, second))
        inner = set(find_objects(grid)) if form == "object" else {(x, y) for x in (1, 2, 3) for y in (1, 2, 3)}
        assert set(second) <= inner
    # 600 draws of probability .5: five standard deviations are 61
    assert abs(wrong - 300) < 61


@pytest.mark.parametrize("name", ["KeyCorridorS3R1", "KeyCorridorS3R2", "Empty-5x5", "UnlockPickup", "DoorKey-8x8"])
def test_plans_of_other_worlds_end_at_what_the_mission_is_about(name):
    env = SubgoalSim(f"MiniGrid-{name}-v0", hidden=0.0).make_env()
    for seed in (2, 4, 6):
        env.reset(seed=seed)
        plan, grid = env.get_wrapper_attr("plan"), env.unwrapped
        end = grid.grid.get(*plan[-1])
        assert end is getattr(grid, "obj", end) and (end.type == "goal") == (not hasattr(grid, "obj"))
        assert [grid.grid.get(*position).type for position in plan[:-1]] == ["key", "door"][: len(plan) - 1]


def test_a_saved_environment_goes_on_with_its_plan_in_workers_too():
    sim = SubgoalSim(DOOR_KEY, hidden=0.0)
    env, other = sim.make(2), sim.make(2)
    rng = derive_rng("moves", 1)
    env.reset(seed=[2, 4])
    for _ in range(40):
        env.step(rng.integers(7, size=2))
    other.load_state_dict(env.state_dict())
    apart = WorkerSim(sim, 2).make(2)
    apart.reset(seed=[2, 4])
    again = derive_rng("moves", 1)
    for _ in range(40):
        apart.step(again.integers(7, size=2))
    for _ in range(30):
        moves = rng.integers(7, size=2)
        expected, *rest = (each.step(moves) for each in (env, other, apart))
        for found in rest:
            for first, second in zip(expected[:4], found[:4]):
                assert (np.asarray(first) == np.asarray(second)).all()
    apart.close()


def test_plans_of_a_file(tmp_path):
    path = write(tmp_path / "plans.jsonl", [{"seed": 2, "subgoals": [[1, 1], [2, 2]]}, {"seed": 4, "subgoals": []}])
    env = SubgoalSim(DOOR_KEY, hidden=0.0, plans=path).make_env()
    for seed, plan in ((2, [(1, 1), (2, 2)]), (4, []), (6, [])):
        env.reset(seed=seed)
        assert env.get_wrapper_attr("plan") == plan


@pytest.mark.parametrize(
    "line",
    [
        "[1]", "{}", '{"seed": 2}', '{"seed": "2", "subgoals": []}', '{"seed": 2, "subgoals": [[1]]}', "nonsense",
        '{"seed": 2, "subgoals": [[1, -1]]}', '{"seed": 2, "subgoals": [[1.5, 1]]}', '{"seed": 2, "subgoals": 3}',
        '{"seed": true, "subgoals": []}', '{"seed": 4, "subgoals": []}',
    ],
)  # fmt: skip
def test_bad_lines_are_refused_by_their_number(tmp_path, line):
    path = tmp_path / "plans.jsonl"
    path.write_text(f'{{"seed": 4, "subgoals": []}}\n\n{line}\n')
    with pytest.raises(ValueError, match=r"plans\.jsonl, line 3: "):
        SubgoalSim(DOOR_KEY, plans=str(path))


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match=r"sim\.plans=.*cannot be read"):
        SubgoalSim(DOOR_KEY, plans=str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="has no line"):
        SubgoalSim(DOOR_KEY, plans=write(tmp_path / "empty.jsonl", []))
    path = write(tmp_path / "far.jsonl", [{"seed": 2, "subgoals": [[7, 1]]}])
    with pytest.raises(ValueError, match=r"sim\.accuracy=0\.5: plans of a file"):
        SubgoalSim(DOOR_KEY, plans=path, accuracy=0.5)
    env = SubgoalSim(DOOR_KEY, plans=path, hidden=0.0).make_env()
    with pytest.raises(ValueError, match=r"seed 2: subgoal \[7, 1\] is outside of the grid, which has 5 columns"):
        env.reset(seed=2)
    with pytest.raises(ValueError, match=r"sim\.accuracy must be in \[0, 1\]"):
        SubgoalSim(DOOR_KEY, accuracy=1.5)
    with pytest.raises(ValueError, match="form must be position or object"):
        SubgoalSim(DOOR_KEY, form="text")
    with pytest.raises(ValueError, match=r"set sim\.autoreset=disabled"):
        SubgoalSim(DOOR_KEY, autoreset="next_step")
    with pytest.raises(ValueError, match="takes worlds of MiniGrid"):
        SubgoalSim("CartPole-v1").make_env()
    with pytest.raises(ValueError, match=r"2 locked doors.*give the subgoals in a file"):
        SubgoalSim("MiniGrid-ObstructedMaze-2Dlh-v0", hidden=0.0).make_env().reset(seed=2)
