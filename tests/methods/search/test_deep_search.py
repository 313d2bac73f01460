"""A search tree: what a leaf says above it, where the search goes on, trees that find nothing, advantages of leaves."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context, Episode, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.search.deep_search import (
    CentredValues,
    SearchNode,
    TreeSearch,
    _Tree,
    back_up,
    choose_leaf,
    frontier_score,
    nodes,
)
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.base import text_observation
from mmrl.rollouts.text.transcript import Transcript
from tests.rollouts.text.test_tools import POLICY
from tests.tiny_recipes import Counting

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
REWARD = WeightedSum({"exact": 1.0})


def line(values):
    """Nodes one below the other, with these values, the last one a leaf."""
    path = [SearchNode(Transcript({}))]
    for depth, value in enumerate(values):
        path.append(SearchNode(Transcript({}), path[-1], depth, value))
        path[-2].children.append(path[-1])
    return path[1:]


def test_the_share_of_a_leaf_grows_towards_it():
    path = line([0.0, 0.0, 0.0])
    back_up(path[-1], 1.0)
    assert [node.value for node in path] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert [node.visits for node in path] == [1, 1, 1]
    deep = line([0.0] * 20)
    back_up(deep[-1], -1.0)
    assert deep[0].value == pytest.approx(-0.1)  # 1/20 would be less than the least share


def test_a_node_from_which_an_answer_was_found_stays_good():
    path = line([0.5, -0.5, 0.0])
    back_up(path[-1], -1.0)
    assert [node.value for node in path] == pytest.approx([0.5, -0.5 - 2 / 3, -1.0])
    back_up(path[-1], 1.0)
    assert [node.value for node in path] == pytest.approx([0.5 + 1 / 3, 2 / 3, 1.0])


def test_frontier_scores():
    assert frontier_score(0.5, 4, 64) == pytest.approx(0.18735, abs=1e-5)
    assert frontier_score(-0.5, 16, 64) == pytest.approx(-0.17985, abs=1e-5)


def test_right_leaves_are_kept_first_and_then_the_least_surprising():
    leaves = [SearchNode(Transcript({}), surprise=s) for s in (0.1, 2.0, 1.0)]
    assert choose_leaf(leaves, [-1.0, 1.0, 1.0]) == 2
    assert choose_leaf(leaves, [-1.0, -1.0, -1.0]) == 0


class Pieces:
    """An engine whose pieces depend on their seed alone: letters, and an end after a digit or an x."""

    def __init__(self, letters, fails=False):
        self.letters, self.fails, self.asked = letters, fails, 0

    def sample(self, requests, sampling):
        assert sampling.max_tokens == 2
        self.asked += len(requests)
        return [self._one(request) for request in requests]

    def _one(self, request):
        letter = self.letters[int(derive_rng(request.seed).integers(len(self.letters)))]
        ids = POLICY.tokenize(letter * 2)
        ended = "error" if self.fails else "done" if letter in "7x" else "length"
        n = len(ids)
        return Completion(
            POLICY.encode(request.observation), ids, torch.full((n,), -1.0), torch.ones(n).bool(), letter * 2, ended,
            extra={"temperature": torch.tensor(1.0)},
        )  # fmt: skip


def searched(engine, group_size=3, slots=(1, 2), **options):
    task = Counting()
    ctx = Context(
        task,
        engine,
        POLICY,
        Sampling(max_tokens=8),
        seed=0,
        iteration=0,
        group_size=group_size,
        collector=Scorer(task, REWARD),
    )
    return TreeSearch(tokens=2, width=3, **options).collect([(slot, task[slot]) for slot in slots], ctx)


def test_every_row_is_a_leaf_with_what_its_pieces_are_worth():
    episodes = searched(Pieces("abx7"))
    assert [(e.group, e.sample_index) for e in episodes] == [(s, a) for s in (1, 2) for a in range(3)]
    seen = set()
    for episode in episodes:
        done = episode.turns[0].completion
        assert POLICY.decode(done.action.tolist()) == done.output == episode.output
        segment = done.extra["segment"]
        assert torch.equal(segment, torch.arange(len(done.action)) // 2)
        right = episode.ended == "done" and "7" in episode.output
        assert set(done.value[-2:].tolist()) == {1.0 if right else -1.0}
        assert (done.value[:-2].abs() < 1).all()
        seen.add(tuple(done.action.tolist()))
        assert not episode.info.get("counts") or episode.info["counts"] in (
            {"tree/solved": 1},
            {"tree/every_leaf_failed": 1},
        )
    batch = collate(episodes, POLICY)
    assert batch["values"].shape == batch["segment"].shape == batch["action_mask"].shape
    assert (batch["segment"][~batch["action_mask"]] == -1).all()


def test_a_tree_grows_to_its_leaves_and_no_further():
    engine = Pieces("7")
    episodes = searched(engine, slots=(1,))
    assert engine.asked == 9 and len(episodes) == 3  # each expansion keeps one of its leaves


def test_a_tree_whose_every_leaf_fails_says_so():
    episodes = searched(Pieces("abx"), slots=(1,))
    assert episodes[0].info["counts"] == {"tree/every_leaf_failed": 1}
    assert all(e.ended != "error" for e in episodes)


def test_a_tree_without_a_leaf_is_an_error_and_no_score():
    (episode,) = searched(Pieces("x", fails=True), slots=(1,), expansions=4)
    assert episode.ended == "error" and episode.info["counts"] == {"tree/no_leaf": 1}
    assert "12 requests failed" in episode.info["error"] and not episode.turns
    (episode,) = searched(Pieces("ab"), slots=(1,), expansions=2)  # nothing had ended when the expansions were spent
    assert episode.info["counts"] == {"tree/no_leaf": 1}


def test_what_is_as_deep_as_it_may_be_and_has_not_ended_is_wrong():
    episodes = searched(Pieces("a"), slots=(1,), expansions=20)
    assert {len(e.turns[0].completion.action) for e in episodes} == {8} and {e.ended for e in episodes} == {"length"}
    assert all(e.turns[0].completion.value[-1] == -1 for e in episodes)


def test_the_learner_scores_leaves_as_they_were_sampled():
    local = LocalEngine()
    local.sync(POLICY, 0)
    alone = [e for slot in (1, 2) for e in searched(local, slots=(slot,), expansions=20)]
    together = searched(local, expansions=20)
    for one, other in zip(alone, together):  # whoever else is searched
        assert torch.equal(one.turns[0].completion.action, other.turns[0].completion.action)
    batch = collate(together, POLICY)
    mask = batch["action_mask"]
    with torch.no_grad():
        assert_close(POLICY(batch).logprobs[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)


def test_nodes_of_a_tree():
    path = line([0.0, 0.0])
    assert len(nodes(path[0].parent)) == 3 and path[-1].path() == path


def tree(final, inner=0.25):
    """Rows of two inner tokens and one of the leaf, the last row cut short."""
    values = torch.tensor([[inner, inner, v] for v in final])
    mask = torch.ones(len(final), 3, dtype=torch.bool)
    return Batch(values=values, group=torch.zeros(len(final), dtype=torch.long), action_mask=mask)


def test_values_of_whole_rows_are_refused():
    result = tree([1.0, -1.0, -1.0, -1.0])
    with pytest.raises(ValueError, match="of every choice"):
        CentredValues()(result.with_columns(values=result["values"][:, 0]), CTX)


def test_leaves_are_centred_on_each_other():
    out = CentredValues()(tree([1.0, -1.0, -1.0, -1.0]), CTX)["advantages"]
    assert_close(out[:, 2], torch.tensor([1.5, -0.5, -0.5, -0.5]))
    assert_close(out[:, 0], torch.full((4,), 0.25 + 0.5))
    assert (CentredValues()(tree([-1.0] * 4, inner=-1.0), CTX)["advantages"] == 0).all()


def test_leaves_are_centred_inside_the_mask_by_hand():
    """Group 3 ends with 1 and -.5, mean .25; of group 7 the row without a choice does not count, and .8 is its mean."""
    nan = float("nan")
    values = torch.tensor([[0.5, 1.0, nan], [0.25, 0.0, -0.5], [nan, 9.0, 9.0], [0.8, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]]).bool()
    batch = Batch(values=values, group=torch.tensor([3, 3, 7, 7]), action_mask=mask)
    expected = torch.tensor([[0.25, 0.75, 0.0], [0.0, -0.25, -0.75], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert_close(CentredValues()(batch, CTX)["advantages"], expected)


def grow(closed, parent, value=0.0):
    """A node below another, closed or open."""
    child = SearchNode(Transcript({}), parent, parent.depth + 1, value, closed=closed)
    parent.children.append(child)
    return child


def test_the_search_goes_deeper_first_and_from_a_leaf_to_the_best_open_node_of_the_tree():
    """The open nodes have the scores 0 below the root and .4 tanh(.5) + .01 sqrt(1 / 4) = .19 below a good node."""
    root = SearchNode(Transcript({}), closed=True)
    leaf, near = grow(True, root), grow(False, root)
    good = grow(True, root, 0.5)
    grow(True, good)  # as good as the open node beside it, and closed
    far, whole = grow(False, good), _Tree(0, Counting()[0], root, root)
    TreeSearch()._go_on(whole, [], 4)
    assert whole.open is near and not whole.kept
    whole.open = root
    done = Episode(Counting()[0], 0, 0, ended="done")
    TreeSearch()._go_on(whole, [(leaf, done)], 4)
    assert whole.open is far and whole.kept == [(leaf, done)] and leaf.value == -1.0  # its reward is 0
    for node in (near, far):
        node.closed = True
    TreeSearch()._go_on(whole, [], 4)
    assert whole.open is root and root.path() == [root]


def test_pieces_surprise_by_their_mean_and_end_where_they_are_as_deep_as_they_may_be():
    """-(-1 - 3) / 2 = 2 nats per token over the policy's own choices; a third token was forced."""
    root = SearchNode(Transcript({}))
    whole = _Tree(0, Counting()[0], root, root)
    ctx = Context(None, None, POLICY, Sampling(), seed=0, iteration=0)
    chosen = torch.tensor([True, True, False])
    piece = Completion(
        {}, POLICY.tokenize("abc"), torch.tensor([-1.0, -3.0, -7.0]), chosen, "abc", "length"
    )  # fmt: skip
    assert TreeSearch()._children(whole, [piece, replace(piece, ended="error")], 2, ctx) == []
    (child,) = root.children
    assert (child.surprise, child.depth, child.closed, whole.failed, root.closed) == (2.0, 0, False, 1, True)
    ((last, episode),) = TreeSearch()._children(replace(whole, open=child), [piece], 2, ctx)
    assert last.depth == 1 and last.closed and episode.output == "abcabc"


def test_outcomes_and_trees_that_one_leaf_solves():
    prompt = Counting()[0]
    answers = [Episode(prompt, 0, 0, ended=e, reward=r) for e, r in (("done", 1), ("done", 0.5), ("length", 1))]
    assert [TreeSearch()._outcome(answer) for answer in answers] == [1.0, -1.0, -1.0]
    whole = _Tree(0, prompt, None, None)
    for value in (-1.0, 1.0):
        (leaf,) = line([value])
        leaf.script.write(Completion({}, torch.ones(1).long(), torch.zeros(1), torch.ones(1).bool(), "a", "done"))
        row = leaf.script.completion("a", "done")
        whole.kept.append((leaf, Episode(prompt, 0, 0, [Turn(row)])))
    assert whole.episodes()[0].info["counts"] == {"tree/solved": 1}


def test_progress_counts_the_trees_that_are_complete():
    """Two trees of one leaf: one is complete after the first expansion, and the other never."""
    notes, task = [], Counting()

    class Half(Pieces):
        def _one(self, request):
            self.letters = "7" if request.observation == text_observation(task[1]) else "a"
            return super()._one(request)

    ctx = Context(
        task, Half("7"), POLICY, Sampling(max_tokens=64), seed=0, iteration=0, group_size=1,
        collector=Scorer(task, REWARD), progress=lambda *note: notes.append(note),
    )  # fmt: skip
    TreeSearch(tokens=2, width=1, expansions=3).collect([(1, task[1]), (2, task[2])], ctx)
    assert notes == [("tree", 0, 2), ("tree", 1, 2), ("tree", 1, 2)]
