"""Judgements: grades by hand and by counting, replies that are read and refused, splits of principles."""

from itertools import product
from math import log

import pytest
from scipy.stats import kendalltau

from mmrl.core.errors import ConfigError
from mmrl.rewards.judges.questions import Reply, Unreadable
from mmrl.rewards.measures import kendall_tau
from tasks.judgements import Judgements
from tasks.judgements.grader import PrincipleGrader, PrincipleVerdict
from tasks.judgements.principles import (
    grade,
    read_reply,
    read_verdicts,
    split_reasons,
    write_question,
    write_reasons,
    write_reply,
    write_verdicts,
)
from tests.tasks.replies import reply


@pytest.mark.parametrize(
    "principle, text, right",
    [
        ("+b", "baba", 3),  # two b of four
        ("+b", "kade", 1),
        ("-b", "baba", 3),
        ("-b", "bibibabe", 1),
        ("+n", "ba", 2),  # two letters of eight
        ("-n", "ba", 4),
        ("-n", "x", 1),  # no sentence
        ("+b-n", "baba", 3),  # 2/4 and 1 - 4/8: mean 1/2
        ("+b+a", "baba", 3),
        ("+b+a", "bakekeke", 2),  # 1/4 and 1/4
        ("+b+a", "badike", 2),
        ("+b+i", "bakeke", 2),  # 1/4 and 0: mean 1/8 is half a grade, which is rounded up
    ],
)
def test_grades_by_hand(principle, text, right):
    assert grade(principle, text) == right


def test_tau_by_hand_and_as_scipy_has_it():
    assert kendall_tau([5, 3, 1, 2], [4, 3, 1, 2]) == 1.0
    assert kendall_tau([1, 3, 5, 4], [4, 3, 1, 2]) == -1.0  # reversed
    assert kendall_tau([2, 2, 2, 2], [4, 3, 1, 2]) == 0.0
    for scores in product((1, 2, 3), repeat=4):
        if len(set(scores)) > 1:
            expected = kendalltau(scores, [4, 3, 1, 2]).statistic
            assert kendall_tau(scores, [4, 3, 1, 2]) == pytest.approx(expected)


def test_scores_by_hand():
    task = Judgements(candidates=3, ranked=True)
    prompt = task[0]
    prompt.info["grades"] = (5, 3, 1)
    wrong = task.score(reply(prompt, "442:123"))
    # pairs 5>3 tied, 5>1 and 3>1 right; distances 1, 1, 1 of 4; leads 0, 2, 2 of 4
    assert wrong["exact"] == 0 and wrong["format"] == 1 and wrong["accuracy"] == pytest.approx(2 / 3)
    assert wrong["match"] == 0.75 and wrong["margin"] == pytest.approx(1 / 3)
    assert wrong["tau"] == pytest.approx(2 / (2 * 3) ** 0.5)  # two pairs agree, 2 and 3 are untied
    for text in ("442:321", "442", "44:12", "642:123", "442:122", "442:1 2 3", ""):
        assert set(task.score(reply(prompt, text)).values()) == {0.0}


def test_replies_are_read_as_they_are_written():
    for grades in product(range(1, 6), repeat=3):
        for ranked in (False, True):
            assert read_reply(write_reply(grades, ranked), 3, ranked) == list(grades)
    assert write_reply([5, 3, 1, 2], True) == "5312:1243"


def test_answers_cannot_change_the_question():
    assert write_question("+b", ["ba 55?", "-n", "baba", "b" * 9, ""]) == "+b x x baba x x?"
    question = PrincipleGrader("+b").ask(reply(Judgements()[0], ""), ["thought\nbaba", "kade"])
    assert question.text == "+b baba kade?" and question.read(Reply("31\n")) == [3.0, 1.0]
    for text in ("3", "311", "60", "3 1"):
        with pytest.raises(Unreadable):
            question.read(Reply(text))


def test_a_combination_is_in_one_split_alone():
    parts = {
        split: {task.split_key(task.problem(i)) for task in [Judgements(combined=1.0).on(split)] for i in range(300)}
        for split in ("train", "held_out")
    }
    assert len(parts["train"]) > 50 and len(parts["held_out"]) > 10 and not parts["train"] & parts["held_out"]


@pytest.mark.parametrize("wrong", [{"principles": ["b"]}, {"candidates": 9}, {"combined": 2.0}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises((ValueError, ConfigError), match="judgements"):
        Judgements(**wrong)


def test_a_wrong_principle_of_a_grader_is_refused():
    with pytest.raises(ValueError, match="principle_grader"):
        PrincipleGrader("more b")


def test_binary_verdicts():
    assert write_verdicts([1, 2, 3, 5]) == "nnyy" and read_verdicts("ny", 2) == [1, 5]
    assert read_verdicts("n", 2) is read_verdicts("yx", 2) is None
    task = Judgements(candidates=1, binary=True)
    prompt = task[0]
    right = prompt.answer
    assert task.score(reply(prompt, right))["exact"] == 1
    assert task.score(reply(prompt, "n" if right == "y" else "y"))["exact"] == 0
    with pytest.raises(ValueError, match="set one to false"):
        Judgements(ranked=True, binary=True)


def test_log_odds_of_the_principle_of_each_prompt():
    """p(yes) = .7 and p(no) = .2: log 3.5 = 1.252763; equal ones: 0."""
    form, prompts = PrincipleVerdict(("+b", "-n")), [Judgements()[i] for i in (0, 1)]
    questions = [form.ask([reply(prompt, "baba")])[0] for prompt in prompts]
    assert [question.text for question in questions] == ["+b baba?", "-n baba?"]
    odds = questions[0].read(Reply("", options={"y": log(0.7), "n": log(0.2)}))
    assert odds == pytest.approx(1.252763, abs=1e-6)
    assert questions[1].read(Reply("", options={"y": log(0.4), "n": log(0.4)})) == 0
    with pytest.raises(ConfigError, match="principles"):
        PrincipleVerdict(())


@pytest.mark.parametrize(
    "options", [{"candidates": 1}, {"candidates": 3, "binary": True}, {"candidates": 4, "fewest": 1}]
)
def test_the_right_grades_have_full_accuracy_where_no_pair_differs(options):
    task = Judgements(**options)
    for index in range(30):
        prompt, right = task[index], task.demonstrate(index)
        assert task.verify(right, prompt)["accuracy"] == task.verify(right, prompt)["exact"] == 1
        if len(set(right)) == 1:  # a wrong answer that keeps the grades equal
            other = next(letter for letter in ("yn" if task.binary else "15") if letter != right[0]) * len(right)
            assert task.verify(other, prompt)["accuracy"] == task.verify(other, prompt)["exact"] == 0


def test_reasons_by_hand():
    """baba has two b and four letters, diki no b and four letters; kx is no sentence."""
    assert write_reasons("+b-n", ["baba", "diki", "kx"]) == "24,04,x"
    assert split_reasons("24,04,x=331", 3, 2) == ("24,04,x", "331")
    for text in ("331", "24,04=331", "2,0,x=331", "24,94,x=331", "24,04,=331"):
        assert split_reasons(text, 3, 2) is None
    task = Judgements(reasons=True)
    prompt = task[0]
    prompt.info.update({"grades": (3, 1), "reasons": "2,0", "principle": "+b"})
    assert task.verify("2,0=31", prompt)["reasons"] == task.verify("2,0=31", prompt)["exact"] == 1
    # a wrong reason with right grades, and right reasons with wrong grades
    assert task.verify("2,1=31", prompt)["reasons"] == 0.5 and task.verify("2,1=31", prompt)["exact"] == 1
    assert task.verify("2,0=13", prompt)["reasons"] == 1 and task.verify("2,0=13", prompt)["accuracy"] == 0
    for text in ("31", "2=31", "2,0=3", "2,0 31"):
        assert set(task.verify(text, prompt).values()) == {0.0}
    grader = PrincipleGrader("+b", reasons=True)
    question = grader.ask(reply(prompt, ""), ["baba", "diki"])
    assert question.read(Reply("2,0=31\n")) == [3.0, 1.0]
    with pytest.raises(Unreadable, match="counts"):
        question.read(Reply("31"))


def test_both_orders_of_a_pair():
    task = Judgements(both_orders=True)
    for index in range(0, 20, 2):
        one, other = task.problem(index), task.problem(index + 1)
        assert one.answers == other.answers[::-1] and one.grades == other.grades[::-1]
        assert task[index].info["pair"] == task[index + 1].info["pair"] and task[index].key != task[index + 1].key
    train, held_out = ({task.on(split)[i].info["pair"] for i in range(200)} for split in ("train", "held_out"))
    assert not train & held_out
    with pytest.raises(ValueError, match="needs pairs"):
        Judgements(both_orders=True, candidates=3)
