"""RLKF: reliability by hand, which answers are preferred where a problem is known, and the stages of its rounds."""

from dataclasses import replace

import pytest

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.types import Episode
from mmrl.methods.preferences.rlkf import KnowledgePreference, RefusalReliability, Refusals, grade, reliability
from mmrl.rewards.scoring import score
from tasks.arithmetic import Arithmetic
from tests.tasks.replies import reply

TASK = Arithmetic()


def group_of(index, *answers):
    """Scored answers to a problem; `right` stands for the right one."""
    prompt = TASK[index]
    texts = [str(prompt.answer) if answer == "right" else answer for answer in answers]
    return [replace(reply(prompt, text), group=index, sample_index=i) for i, text in enumerate(texts)]


def test_reliability_by_hand():
    # 5 right, 2 wrong, 3 refused of 10: Acc .5, Truth .8, Ans .7, and .7 * .8 + .3 * .5 = .71
    assert reliability(5, 3, 10) == pytest.approx((0.5, 0.8, 0.7, 0.71))
    assert reliability(0, 10, 10) == pytest.approx((0, 1, 0, 0))  # all refused
    assert reliability(5, 0, 10) == pytest.approx((0.5, 0.5, 1, 0.5))  # none refused: Rely is Acc


def test_the_evaluator_counts_finished_answers():
    outcomes = [(1, 0)] * 5 + [(0, 0)] * 2 + [(0, 1)] * 3
    episodes = [Episode(TASK[i], i, 0, scores={"exact": e, "refused": r}) for i, (e, r) in enumerate(outcomes)]
    result = RefusalReliability()([*episodes, Episode(TASK[0], 10, 0, ended="error")])
    expected = {"mean": 0.71, "accuracy": 0.5, "truth": 0.8, "answered": 0.7, "n": 10, "errors": 1}
    assert result == pytest.approx(expected)


def test_grades_order_the_answers_of_the_paper():
    assert grade(True, False, True) > grade(False, True, True) == grade(False, False, True)
    assert grade(True, False, False) > grade(False, True, False) > grade(False, False, False)


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        (("right", "right", "0", "?"), [1, 1, 0, 0]),  # 2 of 3 are right, so the problem is known
        (("right", "0", "?"), [1, 0, 0]),  # 1 of 2
        (("right", "0", "0", " ?\n"), [1, 0, 0, 0.5]),  # 1 of 3
        (("0", "?", "?"), [0, 0.5, 0.5]),
        (("?", "?"), [0.5, 0.5]),
    ],
)
def test_a_refusal_is_worth_something_where_the_problem_is_not_known(answers, rewards):
    others = group_of(1, "right")  # another problem has no influence
    group = group_of(0, *answers)
    score([*others, *group], TASK, KnowledgePreference())
    assert [episode.reward for episode in group] == rewards
    assert {episode.scores["known"] for episode in group} == {float(0.5 not in rewards)}
    assert [episode.scores["refused"] for episode in group] == ["?" in answer for answer in answers]


def test_errors_say_nothing_about_what_is_known():
    """Of two finished answers one is right; with two errors it were one of four."""
    group = [*group_of(0, "right", "0"), *(replace(each, ended="error") for each in group_of(0, "0", "0"))]
    for episode, right in zip(group, (1.0, 0.0, 0.0, 0.0)):
        episode.scores = {"exact": right}
    assert [each["known"] for each in KnowledgePreference().scores(group)] == [1, 1, 1, 1]


def test_the_pairs_of_the_rounds_follow_knowledge():
    """Known: the right answer over one of the others; unknown: the refusal over the wrong answer."""
    groups = [group_of(0, "right", "right", "0", "?"), group_of(1, "0", "0", "?"), group_of(2, "?", "?")]
    episodes = [episode for group in groups for episode in group]
    score(episodes, TASK, KnowledgePreference())
    rows = [
        {
            "key": e.prompt.key,
            "index": e.group,
            "prompt": [],
            "completion": e.output,
            "ended": "done",
            "reward": e.reward,
            "scores": e.scores,
        }
        for e in episodes
    ]
    (stage,) = [step.stage for step in list_steps(read_rounds(["rlkf"])) if step.name == "1/pairs"]
    known, unknown = filter_rows(stage, rows, 0)
    assert known["chosen"] == str(TASK[0].answer) and known["rejected"] in ("0", "?")
    assert (unknown["chosen"], unknown["rejected"]) == ("?", "0")


def test_every_problem_gets_a_refusal_among_the_answers_of_the_policy():
    steps = {step.name: step for step in list_steps(read_rounds(["rlkf"]))}
    grow, refuse = (steps[name].stage for name in ("1/grow", "1/refuse"))
    assert (grow.offset, grow.count) == (refuse.offset, refuse.count)
    assert Refusals("no").answer(TASK[0], None, None) == "no"
    assert steps["1/mark"].reads == ("1/grow", "1/refuse") and steps["1/ppo"].weights == "0/sft"


@pytest.mark.parametrize("wrong", [{"least": 1.5}, {"refusal": " "}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match=f"reward.*{next(iter(wrong))}"):
        KnowledgePreference(**wrong)
