"""RLBFF's generative reward model: signed log-odds of a verdict by hand, and what a reply is paid."""

from math import log

import pytest
import torch

from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Turn
from mmrl.methods.preferences.rlbff.verdicts import VerdictReward, signed_odds
from tasks.judgements import Judgements
from tests.tasks.replies import reply

TASK = Judgements(candidates=1, binary=True, reasons=True)


def test_odds_by_hand():
    """p = .7: log(.7 / .3) = .847298; p = .2: log(.2 / .8) = -1.386294, and a wrong verdict turns the sign."""
    assert signed_odds(log(0.7), True, 5.0) == pytest.approx(0.847298, abs=1e-6)
    assert signed_odds(log(0.7), False, 5.0) == pytest.approx(-0.847298, abs=1e-6)
    assert signed_odds(log(0.2), True, 5.0) == pytest.approx(-1.386294, abs=1e-6)
    assert signed_odds(log(0.5), True, 5.0) == pytest.approx(0.0)
    assert signed_odds(0.0, True, 5.0) == 5.0 and signed_odds(-1e-9, False, 5.0) == -5.0
    assert signed_odds(log(0.001), True, 3.0) == -3.0  # log(.001 / .999) = -6.9


def written(text, logprobs, ended="done"):
    prompt = TASK[0]
    prompt.info.update(grades=(5,), principle="+b", reasons="3")
    episode = reply(prompt, text)
    values = torch.tensor(logprobs)
    episode.turns = [Turn(Completion({}, torch.arange(len(values)), values, values < 1, output=text, ended=ended))]
    episode.ended, episode.scores = ended, TASK.verify(text, prompt)
    return episode


def test_the_verdict_before_the_end_is_paid():
    """3=y has the log-probs of 3, =, y and the end: y has .7. Its reasons and the end do not count."""
    reward = VerdictReward({"odds": 1.0, "format": 0.5})
    group = [
        written("3=y", [-3.0, -2.0, log(0.7), -4.0]),
        written("0=n", [-3.0, -2.0, log(0.6), -4.0]),
        written("y", [log(0.9), -0.1]),  # no reasons
        written("3=y", [-3.0, -2.0, log(0.7)], ended="length"),
    ]
    for episode, scores in zip(group, reward.scores(group)):
        episode.scores |= scores
    # log(.6 / .4) = .405465
    assert reward(group) == pytest.approx([0.847298 + 0.5, -0.405465 + 0.5, 0.0, 0.5], abs=1e-6)


def test_a_verdict_alone_is_paid_and_an_end_alone_is_not():
    reward = VerdictReward({"odds": 1.0})
    alone, end = written("y", [log(0.7), -4.0]), written("", [-4.0])
    for episode in (alone, end):
        episode.scores |= {"format": 1.0, "exact": 1.0}
    assert [each["odds"] for each in reward.scores([alone, end])] == [pytest.approx(0.847298, abs=1e-6), 0.0]


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="odds"):
        VerdictReward({"exact": 1.0})
    with pytest.raises(ValueError, match="limit"):
        VerdictReward({"odds": 1.0}, limit=0.0)
