"""WebThinker: the rules in order by hand, pairs of a group, their rows, and the rounds."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.agents.webthinker import CallScores, PriorityPairs, SearchTrajectory, compare
from mmrl.rewards.scoring import Scorer
from tasks.wiki import Wiki

LAWS = [PriorityPairs]
A, B, C = SearchTrajectory(1, 3, 900), SearchTrajectory(0, 1, 100), SearchTrajectory(1, 5, 300)
D, E = SearchTrajectory(1, 3, 1500), SearchTrajectory(1, 3, 1200)
"""Right with 3 calls and 900 tokens; wrong; right with 5 calls; right with 3 calls and 1500 or 1200 tokens."""
CTX = Context(None, None, None, Sampling(), 0, 0)


def test_the_rules_in_order_by_hand():
    assert compare(A, B) == (1, "right") and compare(B, A) == (-1, "right")  # whatever calls and tokens are
    assert compare(A, C) == (1, "calls") and compare(C, A) == (-1, "calls")  # though C is shorter
    assert compare(A, D) == (1, "length")  # 1500 / 900 = 1.667
    assert compare(A, E) is None  # 1.333
    assert compare(A, replace(A, tokens=1350)) is None and compare(A, replace(A, tokens=1351)) == (1, "length")
    assert compare(B, replace(B, calls=9)) is None and compare(B, B) is None  # two that are wrong
    report = replace(B, score=0.4)
    assert compare(report, B) == (1, "right") and compare(report, replace(report, calls=0)) is None
    assert compare(report, replace(report, calls=0), right=0.4) == (-1, "calls")


def test_fewer_rules():
    assert [compare(A, other, rules=["right"]) for other in (B, C, D)] == [(1, "right"), None, None]
    # a rule that is left out does not pass its pairs on to the next one
    assert compare(A, replace(C, tokens=10), rules=["right", "length"]) is None


def test_a_preference_is_never_both_ways():
    for a, b in permutations([A, B, C, D, E], 2):
        one, other = compare(a, b), compare(b, a)
        assert (one is None) == (other is None) and (one is None or one[0] == -other[0])


def episode(trajectory, index, group=3):
    ones = torch.ones(trajectory.tokens)
    done = Completion({}, ones.long(), ones, ones.bool(), str(index))
    info = {"calls": [("?", "x", "ok")] * trajectory.calls}
    return Episode(Prompt("p/0"), group, index, [Turn(done)], {"exact": float(trajectory.score)}, info=info)


def test_all_pairs_of_a_group_and_their_rows():
    """Of a, b, c, d: b against three right ones, a and d against c by calls, and a against d by length."""
    group = [episode(each, i) for i, each in enumerate((A, B, C, D))]
    rows = PriorityPairs(pairs=10)(group, CTX)
    pairs = {(better.output, worse.output) for better, worse in zip(rows[::2], rows[1::2])}
    assert pairs == {("0", "1"), ("2", "1"), ("3", "1"), ("0", "2"), ("3", "2"), ("0", "3")}
    assert [r.group for r in rows] == [30 + i // 2 for i in range(12)]
    assert [float(r.turns[0].completion.extra["preference"]) for r in rows] == [1, -1] * 6
    assert group[0].info["counts"] == {"pairs/right": 3, "pairs/calls": 2, "pairs/length": 1}


def test_pairs_are_drawn_and_differ_by_iteration():
    def draw(iteration):
        group = [episode(each, i) for i, each in enumerate((A, B, C, D))]
        rows = PriorityPairs(pairs=2)(group, replace(CTX, iteration=iteration))
        return [(better.output, worse.output) for better, worse in zip(rows[::2], rows[1::2])]

    drawn = [draw(i) for i in range(30)]
    assert draw(0) == drawn[0] and all(len(set(pairs)) == 2 for pairs in drawn)
    assert len({pair for pairs in drawn for pair in pairs}) == 6  # each of the six in some iteration


def test_a_group_without_a_preference_gives_a_row_that_is_not_trained_on():
    (row,) = PriorityPairs()([episode(A, 0), episode(E, 1)], CTX)
    assert float(row.turns[0].completion.extra["preference"]) == 0
    assert PriorityPairs()([], CTX) == []


@pytest.mark.parametrize("options", [{"pairs": 0}, {"ratio": 0.5}, {"rules": ["cheap"]}, {"rules": []}])
def test_wrong_arguments_are_refused(options):
    with pytest.raises((ConfigError, ValueError), match=next(iter(options))):
        PriorityPairs(**options)


def test_calls_are_a_score():
    task = Wiki(people=60)
    one = replace(episode(A, 0), prompt=task[0], scores={})
    Scorer(task, CallScores({"exact": 1.0, "calls": -0.1})).score([one])
    assert one.scores == {"exact": 0.0, "calls": 3.0} and one.reward == pytest.approx(-0.3)


def test_each_round_begins_from_the_one_before():
    file = read_rounds(["webthinker"])
    steps = {step.name: step for step in list_steps(file)}
    assert [steps[f"{n}/dpo"].weights for n in (1, 2)] == ["0/sft", "1/dpo"]
    overrides = [
        {s.name: s for s in list_steps(read_rounds(["webthinker", *words]))}["1/dpo"].stage.overrides
        for words in ([], file.values["baselines"]["right_alone"])
    ]
    assert [[word.replace(", calls, length]", "]") for word in each] for each in overrides] == [overrides[1]] * 2
