"""VerIPO: pairs by hand, which rollouts become pairs, and problems that are always solved."""

import pytest
import torch

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.methods.vision.veripo import (
    DropEasy,
    Verification,
    VerifiedPairs,
    drop_easy,
    follows_from_reasoning,
    select_pair,
)
from mmrl.objectives.preference import DPOLoss
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import Kinds, at
from tests.methods.problems.test_mopps import shown

LAWS = [lambda: DropEasy(score_name="reward")]

GOOD = Verification(True, True, False, 90)
INCONSISTENT = Verification(True, False, False, 50)
WRONG = Verification(False, True, False, 95)
REPETITIVE = Verification(True, True, True, 60)


def test_pairs_by_hand():
    group = [GOOD, INCONSISTENT, WRONG, REPETITIVE]
    assert select_pair(group) == (0, 2)
    assert select_pair([INCONSISTENT, REPETITIVE, GOOD]) == (2, 0)  # without a wrong one
    assert select_pair([REPETITIVE, GOOD]) == (1, 0)
    assert select_pair(group[1:]) is None  # none is consistent, correct and not repetitive
    assert select_pair([GOOD, GOOD]) is None
    longer = Verification(True, True, False, 91)
    assert select_pair([GOOD, longer, Verification(False, False, True, 10), WRONG]) == (
        1,
        2,
    )  # wrong, inconsistent first
    assert select_pair([GOOD, Verification(False, True, False, 10), WRONG]) == (0, 2)  # the longer one


@pytest.mark.parametrize(
    "completion, verdict",
    [
        ("<think>r b r</think>2 red<answer>2</answer>", 1),
        ("<think>r b r</think>2 red<answer>3</answer>", 0),
        ("<think>there are 3</think>red<answer>3</answer>", 1),
        ("<think>r b r</think>red<answer>2</answer>", 0),  # nothing says 2
        ("2", 0),
        ("", 0),
    ],
)
def test_answers_that_follow(completion, verdict):
    assert follows_from_reasoning(completion) == verdict


def episodes(*rows, group=0):
    """Episodes of (text, exact, follows)."""
    out = []
    for index, (text, exact, follows) in enumerate(rows):
        ids = torch.arange(len(text))
        done = Completion({}, ids, -torch.ones(len(text)), torch.ones(len(text), dtype=torch.bool), text)
        scores = {"exact": float(exact), "follows_from_reasoning": float(follows)}
        out.append(Episode(Prompt("toy/train/0"), group, index, [Turn(done)], scores, reward=float(exact)))
    return out


def labels(result):
    return [(e.group, e.output, float(e.turns[0].completion.extra["preference"])) for e in result]


def test_groups_become_labelled_pairs():
    first = episodes(("a longer one", 1, 1), ("a b c d a b c d a b c d", 1, 1), ("wrong", 0, 1))
    second = episodes(("right", 1, 0), ("wrong", 0, 1), group=1)
    assert labels(VerifiedPairs()([*first, *second], None)) == [(0, "a longer one", 1), (0, "wrong", -1)]
    assert labels(VerifiedPairs(consistent_score=None)(second, None)) == [(1, "right", 1), (1, "wrong", -1)]
    # 9 grams of four words, of which 5 occurred before: .56
    assert labels(VerifiedPairs()(first[:2], None)) == [(0, "a longer one", 1), (0, "a b c d a b c d a b c d", -1)]
    # both are good: one row stays, which is not trained on
    assert labels(VerifiedPairs(max_repeated=0.56)(first[:2], None)) == [(0, "a longer one", 0)]
    assert VerifiedPairs()([], None) == []
    assert labels(VerifiedPairs(correct_score="reward")(first, None))[0][1] == "a longer one"
    with pytest.raises(KeyError, match="set score_name of the transform"):
        VerifiedPairs(consistent_score="judge")(first, None)


def test_two_of_ten_solved_problems_remain():
    rates = dict.fromkeys(range(10), 1.0)
    assert drop_easy(rates, 0.8) == set(range(8))
    assert drop_easy({**rates, 10: 0.9, 11: 0.0}, 0.8) == set(range(8))
    assert drop_easy(dict.fromkeys(range(4), 1.0), 0.8) == {0, 1, 2}  # 3.2, rounded down
    assert drop_easy({0: 0.5}, 0.8) == drop_easy({}, 0.8) == set()


def test_solved_problems_leave_after_a_pass():
    curriculum, task = DropEasy(score_name="reward"), Kinds(8)
    assert sorted(curriculum.select(8, at(0, task))) == list(range(8))
    curriculum.observe(
        [shown(index, [1.0, 1.0]) for index in range(5)] + [shown(index, [0.0, 1.0]) for index in (5, 6, 7)]
    )
    second = curriculum.select(4, at(1, task))
    assert sorted(second) == [4, 5, 6, 7]  # 4 of the 5 left
    curriculum.observe([shown(index, [1.0]) for index in second])
    again = DropEasy(score_name="reward")
    again.load_state_dict(curriculum.state_dict())
    third = curriculum.select(3, at(2, task))
    assert third == again.select(3, at(2, task)) and len(set(third)) == 1  # 3 of the 4 left
    with pytest.raises(ValueError, match=r"fraction must be in \[0, 1\)"):
        DropEasy(fraction=1.0)


def test_phases_follow_each_other():
    last, dpo = compose_words(("recipe=veripo",)), compose_words(("start=veripo_dpo",))
    assert last.trainer.callbacks.warm_start.stages == {"sft": ["start=veripo_dpo"]}
    start = dpo.trainer.callbacks.warm_start
    before = compose_words((*start.common, *start.stages.sft))
    assert before.trainer.callbacks.warm_start.stages == {"sft": ["start=openvlthinker"]}
    assert DPOLoss().beta == 0.1 and "beta" not in dpo.model.objective.terms.preference
