"""Program tree: rules that keep the truth table, validators by hand, masks, rewards, orders and a trap."""

from itertools import product

import numpy as np
import pytest

from sims.gym import GymSim
from sims.program_tree.expressions import draw_expression, mutate, read, rewrite, similarity, truth_table, write
from sims.program_tree.proposers import RuleProposer, TableProposer, build_proposer
from sims.program_tree.tree import DIFFERENT, EQUAL, FEATURES, ProgramTree, draw_pair
from tests.tools.programs.chat_server import serve_texts

SOURCE, TARGET = "not (not a or not b)", "(b and a)"
DEAD_END, WAY = "(a and b)", "not not not (not a or not b)"
CHILDREN = {SOURCE: [DEAD_END, WAY, "(a or b)", "a and"], WAY: [TARGET, SOURCE]}


def make_trap(**options):
    """A pair whose source has a child that looks near and leads nowhere, one that leads on, and two wrong ones."""
    options = {"nodes": 8, "children": 4, "proposer": {"children": CHILDREN}, **options}
    env = ProgramTree(pair=(SOURCE, TARGET, True), **options)
    env.reset(seed=0)
    return env


def test_truth_tables_are_those_of_python():
    rng = np.random.default_rng(0)
    for _ in range(50):
        tree = draw_expression(rng, 5)
        values = (dict(zip("abc", each)) for each in product((False, True), repeat=3))
        assert truth_table(tree) == tuple(eval(write(tree), {}, each) for each in values)
        assert read(write(tree)) == tree


def test_what_is_no_expression_is_not_read():
    for text in ("a and", "d", "a + b", "f(a)", "", "(" * 500):
        assert read(text) is None
    assert read("a and b and c") == ("and", ("and", "a", "b"), "c")


def test_every_rule_keeps_the_truth_table_and_changes_the_program():
    rng = np.random.default_rng(1)
    for _ in range(60):
        tree = draw_expression(rng, 5)
        for other in rewrite(tree):
            assert other != tree and truth_table(other) == truth_table(tree)


def test_rules_by_hand():
    x, y, z = "abc"
    assert rewrite(("not", ("not", x))) == [x]
    assert rewrite(("not", ("and", x, y)))[0] == ("or", ("not", x), ("not", y))
    assert set(rewrite(("and", x, x))) == {x}
    assert set(rewrite(("and", x, ("or", y, z)))) == {
        ("and", ("or", y, z), x), ("or", ("and", x, y), ("and", x, z)), ("and", x, ("or", z, y)),
    }  # fmt: skip
    assert x in rewrite(("or", x, ("and", x, y)))
    assert ("and", x, ("or", y, z)) in rewrite(("or", ("and", x, y), ("and", x, z)))
    assert ("not", ("or", x, y)) in rewrite(("and", ("not", x), ("not", y)))
    assert rewrite(x) == []


def test_similarity_by_hand():
    """(b and a) and (a and b) share 3 of 5 words in order: 6 / 10; equal texts 1."""
    assert similarity(TARGET, DEAD_END) == pytest.approx(0.6) and similarity(TARGET, TARGET) == 1


def test_pairs_are_what_they_say():
    rng = np.random.default_rng(2)
    pairs = [draw_pair(rng, 4, 3) for _ in range(100)]
    for source, target, equal in pairs:
        assert (truth_table(read(source)) == truth_table(read(target))) == equal and source != target
    assert 35 < sum(equal for *_, equal in pairs) < 65
    assert any(truth_table(mutate(("and", "a", "b"), rng)) != truth_table(("and", "a", "b")) for _ in range(5))


def test_validators_and_the_observation_by_hand():
    env = make_trap()
    observation, *_ = env.step(0)
    assert [(node.valid, node.passes, node.parent, node.depth) for node in env.tree] == [
        (True, True, -1, 0), (True, True, 0, 1), (True, True, 0, 1), (True, False, 0, 1), (False, False, 0, 1),
    ]  # fmt: skip
    assert env.tree[1].granularity == 1 - similarity(SOURCE, DEAD_END)
    features = observation["state"][: 8 * len(FEATURES)].reshape(8, -1)
    expected = [1, 1, 1, similarity(SOURCE, TARGET), 0, 0, 1, 1, 0]
    assert features[0] == pytest.approx(expected) and features[1, 3] == pytest.approx(0.6)
    assert features[5:].sum() == 0 and observation["state"][72:].tolist() == [-1, 0, 0, 0, 0, -1, -1, -1]


def test_the_mask_forbids_what_is_expanded_wrong_or_not_there():
    env = make_trap()
    assert env.mask().tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    env.step(0)
    assert env.mask().tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 1, 1]
    env.step(2)
    assert env.tree[5].program == TARGET and env.mask().tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 1, 1]
    for action in (0, 3, 5, 6):
        with pytest.raises(ValueError, match=f"action {action} is masked"):
            env.step(action)
    full = make_trap(nodes=3)
    full.step(0)
    assert len(full.tree) == 3 and full.mask().tolist() == [0, 0, 0, 1, 1]


def test_rewards_are_growth_less_cost_and_then_the_verdict():
    """The largest similarity goes from that of the source to .6, stays at the dead end, and then is 1."""
    env, start = make_trap(metric_weight=0.5, step_cost=0.02), similarity(SOURCE, TARGET)
    rewards = [env.step(action)[1] for action in (0, 1, 2)]
    assert rewards == pytest.approx([0.5 * (0.6 - start) - 0.02, -0.02, 0.5 * 0.4 - 0.02])
    *_, reward, ended, truncated, info = env.step(8 + EQUAL)
    assert (reward, ended, truncated) == (1, True, False)
    assert info["scores"] == {"success": 1, "reached": 1, "nodes": 6}
    env = make_trap()
    *_, reward, _, _, info = env.step(8 + DIFFERENT)
    assert reward == -1 and info["scores"] == {"success": 0, "reached": 0, "nodes": 1}


def walk_greedily(order):
    """Whether expanding the most similar of the open nodes reaches the target."""
    env = make_trap(order=order)
    while (choices := np.flatnonzero(env.mask()[:8])).size:
        env.step(max(choices, key=lambda i: env.tree[i].similarity))
    return env.best() == 1


def test_depth_first_fails_in_the_trap_and_jumping_back_does_not():
    assert not walk_greedily("depth") and walk_greedily("free") and walk_greedily("breadth")


def test_orders():
    env = make_trap(order="depth")
    env.step(0)
    env.step(1)
    assert env.mask().tolist() == [0] * 8 + [1, 1]  # the dead end has no children
    env = make_trap(order="breadth")
    env.step(0)
    assert np.flatnonzero(env.mask()).tolist() == [1, 8, 9]


def test_rules_propose_what_is_right_but_for_planted_errors():
    rng = np.random.default_rng(3)
    program = "((a and b) or (a and c))"
    table = truth_table(read(program))
    for error, least, most in ((0.0, 1.0, 1.0), (1.0, 0.0, 0.4)):
        part = RuleProposer(error)
        right = [truth_table(read(text)) == table for _ in range(20) for text in part.propose(program, "", 3, rng)]
        assert len(right) == 60 and least <= np.mean(right) <= most
    assert TableProposer({"a": ["b", "c"]}).propose("a", "", 1, rng) == ["b"]
    assert isinstance(build_proposer({"error": 0.1}), RuleProposer)


def test_a_language_model_proposes_lines():
    content = "1. (b and a)\n- `not not (a and b)`\n\nnonsense here\n"
    with serve_texts([content]) as (url, bodies):
        env = make_trap(proposer={"url": url, "model": "m", "retries": 0})
        env.step(0)
    assert SOURCE in bodies[0]["messages"][0]["content"] and TARGET in bodies[0]["messages"][0]["content"]
    assert [(node.program, node.passes) for node in env.tree[1:]] == [
        ("(b and a)", True), ("not not (a and b)", True), ("nonsense here", False),
    ]  # fmt: skip


def test_it_is_a_simulator_with_a_mask():
    sim = GymSim("sims.program_tree:ProgramTree-v0", {"nodes": 6})
    sizes = sim.sizes()
    assert (sizes["observation_dims"], sizes["actions"], sizes["action_mask"]) == (60, 8, True)


def test_refusals():
    for options in ({"nodes": 0}, {"step_cost": -1.0}, {"order": "random"}, {"proposer": {"error": 2.0}}):
        with pytest.raises(ValueError, match=next(iter(options)) if "proposer" not in options else "error"):
            ProgramTree(**options)
