"""x1: selection, backup and advantages by hand and by brute force, and what a tree gives."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Episode, Turn
from mmrl.data.collate import collate
from mmrl.methods.search.rlm_blueprint import (
    TreeAdvantage,
    ValueGuidedSearch,
    back_up_value,
    select_scores,
    tree_advantage,
)
from mmrl.rollouts.text.transcript import Transcript
from mmrl.rollouts.trees.node import StepNode
from mmrl.rollouts.trees.search import StepTree
from tests.laws.example import Example
from tests.rollouts.text.test_tools import POLICY
from tests.rollouts.trees.test_search import collect, decode

LAWS = [Example(TreeAdvantage()), Example(TreeAdvantage(1.0, 0.0))]


def test_selection_by_hand():
    """sqrt(9) (1.25 + ln(19662 / 19652)) = 3.751526, over 4, 7 and 1; Q of [-1, 1] to [0, 1]."""
    scores = select_scores([0.5, -0.2, 0.0], [3, 6, 0], 10)
    assert scores == pytest.approx([1.687882, 0.935932, 4.251526], abs=1e-6)
    assert select_scores([0.5, -0.2], [0, 0], 1) == pytest.approx([0.75, 0.4])  # Q alone
    assert select_scores([2.0, 0.0], [0, 0], 1, bounds=(-1.0, 2.0)) == pytest.approx([1.0, 1 / 3])


def test_backup_by_hand():
    """.96 (3 * .5 - 6 * .2) / 9 = .032."""
    children = [(3, 0.5), (6, -0.2), (0, 0.9)]
    assert back_up_value(0.7, children, 0.96) == pytest.approx(0.032)
    assert back_up_value(0.7, children, 0.96, rate=0.5) == pytest.approx(0.366)
    assert back_up_value(0.7, [(0, 0.9)], 0.96) == 0.7


def test_advantages_against_the_sum_of_errors():
    """A_k = sum_l (gamma lambda)^l delta_(k+l), written out for rows of three, one and no steps."""
    gamma, lam = 0.9, 0.8
    segment = torch.tensor([[0, 0, 1, 2, -1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    q = torch.tensor([[0.1, 0.4, -0.2, 1.0], [0.3, -1.0, 0, 0], [0, 0, 0, 0]])
    before = torch.stack([q[n][segment[n].clamp(min=0)] for n in range(3)])
    after = torch.stack([q[n][segment[n].clamp(min=0) + 1] for n in range(3)])
    deltas = [0.9 * 0.4 - 0.1, 0.9 * -0.2 - 0.4, 1.0 + 0.2]
    steps = [sum((gamma * lam) ** (j - k) * deltas[j] for j in range(k, 3)) for k in range(3)]
    out = tree_advantage(before, after, segment, mask, gamma, lam)
    assert_close(out[0], torch.tensor([steps[0], steps[0], steps[1], steps[2], 0.0]))
    assert_close(out[1], torch.tensor([-1.3, 0, -1.3, 0, 0])) and not out[2].any()


def test_values_are_discounted_means_by_visits():
    _, trees, _ = collect(ValueGuidedSearch(iterations=10, width=3, depth=2, simulations=1, mix=1.0))
    for tree in trees:
        assert tree.root.visits == 10
        for node in tree.root.nodes():
            visited = [child for child in node.children if child.visits]
            if node.outcome is not None or not visited:
                assert node.value == node.estimate  # also before the first visit
                continue
            assert node.visits == 1 + sum(child.visits for child in node.children)
            mean = sum(0.96 * child.visits * child.value for child in visited) / sum(c.visits for c in visited)
            assert node.value == pytest.approx(mean)
        assert decode(max(tree.root.children, key=lambda child: child.visits)) == "a\n"


def test_finished_answers_are_rows_with_the_values_of_their_steps():
    episodes, trees, _ = collect(ValueGuidedSearch(iterations=10, width=3, depth=2, simulations=1, mix=1.0))
    batch = collate(episodes, POLICY)
    row = 0
    for tree in trees:
        leaves = [node for node in tree.root.nodes() if node.outcome is not None]
        rows = sorted(leaves, key=lambda node: -node.visits)[:2]
        assert len(leaves) == 3 and [e.sample_index for e in episodes if e.group == tree.slot] == [0, 1]
        for leaf in rows:
            root, step, _ = leaf.path()
            assert episodes[row].output == decode(leaf)
            assert batch["segment"][row].tolist() == [0, 0, 1] and batch["action_mask"][row].all()
            assert_close(batch["returns"][row], torch.tensor([root.value, root.value, step.value]))
            assert_close(batch["values"][row], torch.tensor([step.value, step.value, leaf.outcome]))
            row += 1
    assert row == len(episodes) and episodes[0].info["counts"] == {"tree/solved": 1}


def test_a_tree_without_an_answer_is_an_error():
    episodes, _, _ = collect(ValueGuidedSearch(iterations=1, depth=3, simulations=1, mix=1.0), slots=(0,))
    assert [(e.ended, e.info["counts"]) for e in episodes] == [("error", {"tree/no_leaf": 1})]


def test_a_step_that_a_row_skips_is_no_step_and_padding_is_none():
    """Steps 0 and 2: 1 - .5 = .5 at the end, .9 * .5 - .2 + .72 * .5 = .61 before; a segment of 7 is outside."""
    segment, mask = torch.tensor([[0, 2, 7]]), torch.tensor([[True, True, False]])
    before, after = torch.tensor([[0.2, 0.5, 9.0]]), torch.tensor([[0.5, 1.0, 9.0]])
    expected = torch.tensor([[0.61, 0.5, 0.0]])
    assert_close(tree_advantage(before, after, segment, mask, 0.9, 0.8), expected)
    batch = Batch(returns=before, values=after, segment=segment, action_mask=mask)
    assert_close(TreeAdvantage(0.9, 0.8)(batch, None)["advantages"], expected)


def test_a_tree_is_solved_by_one_of_its_answers():
    root = StepNode(Transcript({}, 0))
    for text, outcome in (("a", -1.0), ("b", 1.0)):
        script, ids = root.script.fork(), POLICY.tokenize(text)
        script.write(Completion({}, ids, torch.zeros(1), torch.ones(1).bool(), text))
        node = StepNode(script, root, outcome=outcome)
        node.answer = Episode(None, 0, 0, [Turn(script.completion(text, "done"))])
        root.children.append(node)
    episodes = ValueGuidedSearch().list_episodes(StepTree(0, None, root), SimpleNamespace(group_size=2))
    assert [episode.info.get("counts") for episode in episodes] == [{"tree/solved": 1}, None]
