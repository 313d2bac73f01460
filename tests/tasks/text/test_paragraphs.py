"""Paragraphs: shares by hand, ratings of them, and demonstrations that follow a plan."""

import numpy as np
import pytest

from tasks.grammar.paragraphs import Paragraphs, share_of
from tests.tasks.replies import reply

FREE = {"levels": [0], "refusals": 0.0, "objectives": "bae"}


def test_shares_and_forms_by_hand():
    """badi beka: consonants b d b k, of which 2/4 are b; vowels a i e a, of which 2/4 are a and 1/4 are e."""
    task = Paragraphs(**FREE)
    scores = task.score(reply(task[0], "badi beka"))
    assert scores == {"exact": 1.0, "format": 1.0, "share_b": 0.5, "share_a": 0.5, "share_e": 0.25}
    for wrong in ("badi  beka", "badi bek", "", "ba ba ba ba", "badi x"):
        assert set(task.score(reply(task[0], wrong)).values()) == {0.0}, wrong
    assert share_of("b", "aei") == 0.0


def test_the_plan_by_hand():
    """Plans b a e: after the letter that a sentence has most, the next sentence should have the next letter.

    Of "bibi kaka keke": b most in bibi, share of a in kaka 1; a most in kaka, share of e in keke 1: plan 1. Of
    "bibi kika dede": share of a in kika 1/2; a is most there, share of e in dede 1: 3/4.
    """
    task = Paragraphs(**FREE, planned=True)
    assert task.follow_plan(["bibi", "kaka", "keke"]) == 1.0
    assert task.follow_plan(["bibi", "kika", "dede"]) == 0.75
    assert task.follow_plan(["bibi"]) == 0.0
    assert task.score(reply(task[0], "bibi kaka keke"))["plan"] == 1.0
    assert task.score(reply(task[0], "bibi kaka x"))["plan"] == 0.0
    means = [np.mean([t.follow_plan(t.demonstrate(i).split()) for i in range(300)]) for t in (task, Paragraphs(**FREE))]
    assert means[0] > 0.6 and abs(means[1] - 1 / 3) < 0.06


def test_ratings_are_shares_on_a_scale_from_1_to_10():
    """A share of .5 is 1 + 9 * .5 = 5.5, and an error of -2 at noise .5 takes 1 from it; ratings stay on the scale."""
    task = Paragraphs(**FREE)
    assert task.rate("b", "badi", 0.0) == 5.5 and task.rate("b", "badi", -2.0) == 4.5
    assert task.rate("b", "baba", 3.0) == 10.0 and task.rate("b", "dada", -3.0) == 1.0
    exact = Paragraphs(**FREE, noise=0.0)
    for prompt in (exact[i] for i in range(20)):
        text = prompt.info["chosen"]
        assert prompt.info["labels"] == {c: 1 + 9 * share_of(c, text) for c in "bae"}
        assert exact.score(reply(prompt, text))["exact"] == 1.0
    assert len({prompt.info["chosen"] for prompt in (exact[i] for i in range(20))}) > 15


def test_demonstrations_are_paragraphs():
    task = Paragraphs(**FREE, longest=6)
    for i in range(20):
        assert task.score(reply(task[i], task.demonstrate(i)))["exact"] == 1.0
    assert task.guess(task[0], np.random.default_rng(0)) != task.guess(task[0], np.random.default_rng(1))
    rated = reply(task[0], 5.5)
    rated.info["scores"] = {"error_b": 0.5}
    assert task.score(rated) == {"error_b": 0.5}
    with pytest.raises(ValueError, match="objectives"):
        Paragraphs(levels=[0], refusals=0.0)
    with pytest.raises(ValueError, match="rich"):
        Paragraphs(**FREE, rich=2.0)
