"""DECKARD's rollouts: goals, bonuses and corrections decision by decision, runs, and what they refuse."""

import json

import numpy as np
import pytest

import mmrl
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context
from mmrl.methods.goals.deckard.graph import RecipeGraph
from mmrl.methods.goals.deckard.guides import ModelGuide, ScriptedGuide
from mmrl.methods.goals.deckard.policy import RecipeGraphPolicy
from mmrl.methods.goals.deckard.rollout import (
    DECKARD,
    GuidedEpisodic,
    GuidedSim,
    Pursuit,
    count_recipes,
    find_crafting_sim,
)
from sims.point import PointSim
from sims.task import SimTask
from tests.sims.craft.test_world import COLLECT, DOWN, LEFT, PLANK, RIGHT, TABLE, UP, place
from tests.sims.craft.worlds import tiny
from tests.tiny_recipes import QUIET
from tests.tools.programs.chat_server import serve_texts

LOG, STONE, PLANKS, TABLES = range(4)  # items of the tiny world
SIM = tiny(subgoals=True)


def guided(pursuit: Pursuit, wrong_table: bool = False):
    """One world in the middle of which the agent stands, with a graph of the real recipes."""
    graph = RecipeGraph(4)
    ScriptedGuide(0.0).fill(graph, SIM.items, SIM.needs)
    if wrong_table:  # takes a stone, and a stone takes a table
        graph.guess(TABLES, np.array([0, 1, 0, 0]), np.zeros(4, bool))
    env = GuidedSim(SIM, graph, pursuit).make(1)
    env.reset(seed=[0])
    place(env.unwrapped.envs[0])
    return env, graph


def shown(observation) -> int:
    assert observation[0, -4:].sum() == 1
    return int(observation[0, -4:].argmax())


def test_an_evaluation_shows_what_the_target_lacks_and_learns_nothing():
    env, graph = guided(Pursuit())
    played = [
        *[(UP, LOG), (COLLECT, PLANKS), (PLANK, LOG), (LEFT, LOG), (COLLECT, PLANKS), (PLANK, TABLES), (RIGHT, TABLES)],
        *[(DOWN, TABLES), (DOWN, TABLES), (TABLE, STONE), (COLLECT, STONE)],
    ]  # two planks of one log are one too few for a table
    for number, (action, subgoal) in enumerate(played, 1):
        observation, rewards, done, _, _ = env.step([action])
        assert shown(observation) == subgoal and done[0] == (number == len(played)) == (rewards[0] == 1)
    assert not graph.visits.any() and not graph.verified.any() and not graph.counts.any()


def test_goals_bonuses_and_corrections_by_hand():
    env, graph = guided(Pursuit(True, True, 0.5, 100, 100), wrong_table=True)
    # stone and table are guessed to need each other, and logs are not on the way to either: any item may be the goal
    assert graph.visits.sum() == 1 and graph.counts.tolist() == [1, 0]
    first = int(graph.visits.argmax())
    env._goals[0], env._subgoals[0] = TABLES, graph.find_subgoal(TABLES, [0] * 4)
    assert env._subgoals[0] == STONE  # as the guess says, whose own tool is on the way
    for action in (UP, COLLECT, PLANK, LEFT, COLLECT):
        _, rewards, *_ = env.step([action])
        assert rewards[0] == 0  # the guess takes none of it
    assert graph.verified.tolist() == [True, False, True, False] and graph.first_step.tolist() == [2, -1, 3, -1]
    assert graph.ingredients[TABLES].tolist() == [0, 1, 0, 0]
    env.step([PLANK])
    _, rewards, *_ = env.step([TABLE])
    # the table is had without a stone: the wrong edge is removed, the goal achieved, and another one is drawn
    assert graph.ingredients[TABLES].tolist() == [0, 0, 3, 0] and graph.verified[TABLES]
    assert graph.success[TABLES] == pytest.approx(0.1) and rewards[0] == 0.5 and graph.visits.sum() == 2
    assert count_recipes(graph, SIM.needs, STONE) == {
        "graph/verified": 3, "graph/wrong": 0, "graph/target_success": 0, "graph/target_steps": 7,
    }  # fmt: skip
    env._goals[0] = env._subgoals[0] = STONE
    for action in (DOWN, DOWN, RIGHT):
        env.step([action])
    _, rewards, done, *_ = env.step([COLLECT])
    assert done[0] and rewards[0] == 1.5 and graph.success[STONE] == pytest.approx(0.1)
    assert graph.first_step[STONE] == 11 and graph.list_candidates(STONE) == [STONE] and first in range(4)
    env.step([UP])  # an ended world keeps still
    assert graph.counts[1] == 11


def test_bonuses_are_the_pieces_that_the_goal_no_longer_takes():
    """Whatever is played, wasted and had again: their sum is the difference of the pieces that remain."""
    env, graph = guided(Pursuit(True, True, 1.0, 10**6, 10**6))
    for item in range(4):
        graph.verify(item, *(part[item] for part in SIM.needs))
    rng = np.random.default_rng(0)
    for seed in range(3):
        env.reset(seed=[seed])
        # 3 planks of a log each, as far as the graph knows, a table and the stone
        paid, done, remaining = 0.0, False, 8
        assert graph.count_remaining(STONE, [0, 0, 0, 0]) == remaining
        while not done:
            _, rewards, terminated, truncated, infos = env.step(rng.integers(7, size=1))
            paid, done = paid + rewards[0] - terminated[0], bool(terminated[0] or truncated[0])
            remaining = 0 if terminated[0] else graph.count_remaining(STONE, infos["held"][0])
            assert paid == 8 - remaining


def test_a_goal_is_given_up():
    for limits in ((3, 100), (100, 3)):
        env, graph = guided(Pursuit(True, True, 1.0, *limits))
        assert graph.visits.tolist() == [1, 0, 0, 0]  # the log is the only goal at the edge
        graph.success[:] = 0.5
        for step in range(1, 4):
            env.step([DOWN])
            assert graph.visits[0] == (2 if step == 3 else 1)
        assert graph.success[LOG] == pytest.approx(0.45)


def test_a_saved_environment_goes_on_with_its_goals():
    pursuit, rng = Pursuit(True, False, 1.0, 5, 20), np.random.default_rng(0)
    graphs = [RecipeGraph(4), RecipeGraph(4)]
    for graph in graphs:
        ScriptedGuide(0.5).fill(graph, SIM.items, SIM.needs)
    one, other = (GuidedSim(SIM, graph, pursuit).make(2) for graph in graphs)
    one.reset(seed=[2, 4])
    for _ in range(15):
        one.step(rng.integers(7, size=2))
    other.load_state_dict(one.state_dict())
    for name in RecipeGraph.ARRAYS:
        getattr(graphs[1], name)[...] = getattr(graphs[0], name)
    for _ in range(20):
        actions = rng.integers(7, size=2)
        for first, second in zip(one.step(actions)[:4], other.step(actions)[:4]):
            assert (first == second).all()
    assert all((getattr(graphs[0], name) == getattr(graphs[1], name)).all() for name in RecipeGraph.ARRAYS)


def test_the_graph_is_saved_with_the_policy(tmp_path):
    policy = RecipeGraphPolicy(16, 7, 4, hidden=[8])
    graph = policy.read_graph()
    graph.verify(PLANKS, *(part[PLANKS] for part in SIM.needs))
    graph.note(PLANKS, True)
    assert not policy.read_graph().verified.any()
    policy.write_graph(graph)
    policy.save_pretrained(tmp_path)
    loaded = RecipeGraphPolicy(path=str(tmp_path))
    for name in RecipeGraph.ARRAYS:
        assert (getattr(loaded.read_graph(), name) == getattr(graph, name)).all()
    assert loaded.read_graph().success[PLANKS] == pytest.approx(0.1)


def test_a_language_model_is_asked_once_for_all_items():
    answer = json.dumps({"plank": {"from": {"log": 1}}, "stone": {"tools": ["table"]}})
    with serve_texts([answer]) as (url, asked):
        graph = RecipeGraph(4)
        ModelGuide(url, "any").fill(graph, SIM.items, SIM.needs)
    assert len(asked) == 1 and "log, stone, plank, table" in asked[0]["messages"][0]["content"]
    assert graph.guessed.all() and graph.list_needs(PLANKS) == [LOG] and graph.list_needs(STONE) == [TABLES]
    assert graph.list_needs(TABLES) == []


TINY = (
    *("rollout.num_envs=2", "rollout.horizon=64", "data.num_minibatches=1", "capture=false", "data.update_epochs=1"),
    *("trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "evaluation.count=2", "sim.max_steps=16"),
    *(word for word in QUIET if word != "trainer.logger=false"),
)


def test_a_run_verifies_recipes_and_its_checkpoint_has_them(tmp_path):
    run = mmrl.fit("recipe=deckard", f"run_dir='{tmp_path / 'run'}'", *TINY)
    metrics = run.last_metrics
    assert metrics["graph/verified"] >= 1 and 0 <= metrics["graph/wrong"] <= 3
    assert metrics["graph/target_steps"] == metrics["env_steps"] == 128
    assert metrics["val/greedy/returns/success"] == 0 and "val/greedy/returns/skill/wood" in metrics
    graph = run.load_policy().policy.read_graph()
    assert graph.verified.sum() == metrics["graph/verified"] and graph.counts[1] == 128


def context(sim, policy) -> Context:
    return Context(SimTask(sim, 4), None, policy, None, 0, 0)  # type: ignore[arg-type]


def test_refusals():
    policy = RecipeGraphPolicy(16, 7, 4, hidden=[8])
    assert find_crafting_sim(context(SIM, policy)) is SIM
    for sim in (PointSim(), tiny()):
        with pytest.raises(ConfigError, match=r"take sim=craft sim\.subgoals=true"):
            GuidedEpisodic().collect([], context(sim, policy))
    with pytest.raises(ConfigError, match="a graph of the 4 items of sim 'craft': take policy=recipe_graph"):
        find_crafting_sim(context(SIM, RecipeGraphPolicy(16, 7, 5, hidden=[8])))
    for options in ({"bonus": -1.0}, {"subgoal_steps": 0}, {"goal_steps": 0}):
        with pytest.raises(ValueError, match=f"rollout.{next(iter(options))} must be at least"):
            DECKARD(ScriptedGuide(), **options)
    with pytest.raises(ValueError, match=r"policy\.items=None"):
        RecipeGraphPolicy(16, 7)


def test_recipes_are_counted_by_hand():
    """A plank without its log and a stone without its tool are wrong; the target was had before any decision."""
    graph = RecipeGraph(4)
    for item in range(4):
        graph.guess(item, *(part[item] for part in SIM.needs))
    graph.ingredients[PLANKS, LOG] += 1
    graph.tools[STONE] = ~graph.tools[STONE]
    graph.first_step[STONE], graph.counts[1] = 0, 5
    counts = count_recipes(graph, SIM.needs, STONE)
    assert (counts["graph/wrong"], counts["graph/target_steps"]) == (2, 0)
    assert count_recipes(graph, SIM.needs, LOG)["graph/target_steps"] == 5


def test_worlds_are_reset_alone_and_truncated_ones_keep_still():
    graph = RecipeGraph(4)
    ScriptedGuide(0.0).fill(graph, SIM.items, SIM.needs)
    env = GuidedSim(tiny(subgoals=True, max_steps=2), graph, Pursuit(True, True, 0.5, 100, 100)).make(2)
    env.reset(seed=[0, 1])
    assert graph.visits.sum() == 2
    env.reset(seed=[2, None], options={"reset_mask": np.array([True, False])})
    assert graph.visits.sum() == 3
    for _ in range(4):
        env.step([UP, UP])
    assert graph.counts[1] == 4  # two decisions of each
