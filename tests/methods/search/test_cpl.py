"""CPL: PUCT and Step-APO by hand, pairs of siblings, values of a tree recomputed, and rows of pairs."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, PolicyOutput
from mmrl.data.collate import collate
from mmrl.methods.search.cpl import PlanSearch, puct, select_pairs
from mmrl.objectives.preference import DPOLoss
from mmrl.rollouts.text.transcript import Transcript
from mmrl.rollouts.trees.node import StepNode
from mmrl.rollouts.trees.search import StepTree
from tests.rollouts.text.test_tools import POLICY
from tests.rollouts.trees.test_search import collect, decode


def test_puct_by_hand():
    """sqrt(9) = 3: .4 + 1.5 * .6 * 3 / 6, -.1 + 1.5 * .9 * 3 / 4, 0 + 1.5 * .3 * 3 / 1."""
    assert puct(0.4, 0.6, 5, 9) == pytest.approx(0.85)
    assert puct(-0.1, 0.9, 3, 9) == pytest.approx(0.9125)
    assert puct(0.0, 0.3, 0, 9) == pytest.approx(1.35)


@pytest.mark.parametrize(
    "gap, loss, weight", [(0.5, 0.765595, 0.160483), (0.0, 0.529260, 0.123288), (1.8, 1.652631, 0.242536)]
)
def test_step_apo_by_hand(gap, loss, weight):
    """Log-ratios .8 and -.4 at beta .3: .36 less the gap inside the sigmoid; the gradient of the better row is
    -.3 sigmoid(gap - .36)."""
    chosen = torch.tensor([[0.8], [-0.4]], requires_grad=True)
    batch = Batch(
        action_mask=torch.ones(2, 1).bool(),
        ref_logprobs=torch.zeros(2, 1),
        group=torch.zeros(2).long(),
        preference=torch.tensor([1.0, -1.0]),
        preference_margin=torch.full((2,), gap),
    )
    out = DPOLoss(beta=0.3, margins=True)(PolicyOutput(chosen, torch.zeros(2, 1)), batch)
    assert out.tolist() == pytest.approx([loss, loss], abs=1e-6)
    out[0].backward()
    assert chosen.grad[:, 0].tolist() == pytest.approx([-weight, weight], abs=1e-6)
    assert weight == pytest.approx(0.3 / (1 + math.exp(0.36 - gap)), abs=1e-6)


def children(*steps):
    root = StepNode(Transcript({}, 0))
    root.children = [StepNode(Transcript({}, 0), root, value=value, outcome=outcome) for value, outcome in steps]
    return root


def test_pairs_of_siblings_by_hand():
    """Steps .5, .2, 0, -.4: two pairs. Answers 1, .3, -1: the extremes alone, .3 * 2."""
    node = children((0.5, None), (0.2, None), (0.0, None), (-0.4, None), (1.0, 1.0), (0.3, 1.0), (-1.0, -1.0))
    pairs = [(a.value, b.value, gap) for a, b, gap in select_pairs(node)]
    assert pairs == [(0.5, -0.4, 0.9), (0.2, -0.4, pytest.approx(0.6)), (1.0, -1.0, pytest.approx(0.6))]
    assert select_pairs(children((0.5, None), (-1.0, -1.0))) == []  # a step and an answer
    assert select_pairs(children((1.0, 1.0), (0.5, 1.0))) == []


def test_values_are_means_of_all_visits_below():
    """N and N Q of a node are its own visit and its children's, from the leaves on."""
    _, trees, _ = collect(PlanSearch(iterations=12, depth=2, simulations=2, mix=1.0))
    for tree in trees:
        assert tree.root.visits == 12
        for node in tree.root.nodes():
            if node.outcome is not None:
                assert node.value == (node.outcome if node.visits else 0)
            elif node.visits:
                assert node.visits == 1 + sum(child.visits for child in node.children)
                total = node.estimate + sum(child.visits * child.value for child in node.children)
                assert node.value * node.visits == pytest.approx(total)
        best = max(tree.root.children, key=lambda child: child.visits)
        assert decode(best) == "a\n"  # behind which every answer is right


def test_a_tree_gives_rows_of_pairs():
    """Behind "b" the answers x and y were found: one pair, .3 * (1 + 1) * alpha, and Q of "b" before the answer."""
    episodes, trees, _ = collect(PlanSearch(iterations=12, depth=2, simulations=1, mix=1.0, alpha=2.0))
    chosen_pairs = [(tree, node, pair) for tree in trees for node in tree.root.nodes() for pair in select_pairs(node)]
    assert len(episodes) == 2 * len(chosen_pairs) > 0
    batch = collate(episodes, POLICY)
    for number, (tree, node, (chosen, rejected, gap)) in enumerate(chosen_pairs):
        for row, child, sign in ((2 * number, chosen, 1), (2 * number + 1, rejected, -1)):
            mask, size = batch["action_mask"][row], len(child.script)
            assert POLICY.decode(batch["action"][row, :size].tolist()) == decode(child)
            assert mask.tolist() == [len(node.script) <= t < size for t in range(len(mask))]
            assert float(batch["preference"][row]) == sign
            assert float(batch["preference_margin"][row]) == pytest.approx(2 * gap)
            assert_close(batch["returns"][row][mask], torch.full((int(mask.sum()),), node.value))
            assert int(batch["group"][row]) // 16 == tree.slot
    assert len(set(batch["group"].tolist())) == len(chosen_pairs)
    assert episodes[0].info["counts"]["tree/solved"] == 1


def test_a_tree_without_a_pair_gives_a_row_without_a_preference():
    episodes, _, _ = collect(
        PlanSearch(iterations=3, depth=1, simulations=1, mix=1.0), answer=lambda *_: "x", slots=(0,)
    )
    assert len(episodes) == 1 and float(episodes[0].turns[0].completion.extra["preference"]) == 0
    assert episodes[0].info["counts"] == {"tree/pairs": 0, "tree/solved": 1}


def listed(*steps, **options):
    """Rows of a tree of slot 2 whose root has these children (value, outcome)."""
    root = StepNode(Transcript({}, 0))
    for letter, (value, outcome) in zip("abcd", steps):
        script = root.script.fork()
        ids = POLICY.tokenize(letter)
        script.write(Completion({}, ids, torch.zeros(1), torch.ones(1).bool(), letter))
        root.children.append(StepNode(script, root, value=value, outcome=outcome))
    return PlanSearch(max_pairs=4, **options).list_episodes(StepTree(2, None, root), None)


def test_pairs_of_a_tree_are_numbered_from_its_slot():
    """Steps .5, .25 and -.5: the pairs of the worst with the others, 8 and 9, as slot 2 has four numbers."""
    rows = listed((0.5, None), (0.25, None), (-0.5, None))
    assert [(row.group, row.sample_index) for row in rows] == [(8, 0), (8, 1), (9, 0), (9, 1)]
    assert rows[0].info["counts"] == {"tree/pairs": 2, "tree/unsolved": 1}


def test_trees_without_steps_or_pairs():
    (failed,) = listed()
    assert failed.ended == "error" and failed.group == 8 and failed.info["counts"] == {"tree/failed": 1}
    (alone,) = listed((1.0, 1.0))
    assert alone.ended != "error" and alone.info["counts"] == {"tree/pairs": 0, "tree/solved": 1}
    assert listed((-1.0, -1.0))[0].info["counts"] == {"tree/pairs": 0, "tree/unsolved": 1}
