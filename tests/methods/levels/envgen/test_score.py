"""EnvGen's measurements: the score of a game and errors of success rates, by hand."""

import math

import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.methods.levels.envgen.score import GameScore, SkillSuccess, game_score


@pytest.mark.parametrize(
    ("percent", "score"),
    [
        ([100, 0], 9.049876),  # sqrt(101 x 1) - 1
        ([10, 10, 10], 10.0),
        ([0, 0], 0.0),
        ([50, 20, 0, 100], 17.135424),  # fourth root of 51 x 21 x 1 x 101 = 108,171, less 1
    ],
)
def test_the_score_is_a_geometric_mean_by_hand(percent, score):
    assert game_score(percent) == pytest.approx(score, abs=1e-6)
    product = math.prod(1 + rate for rate in percent)
    assert game_score(percent) == pytest.approx(product ** (1 / len(percent)) - 1)


def test_rates_have_standard_errors():
    """3 of 12: sqrt(.25 x .75 / 12) = .125."""
    skill = SkillSuccess(12, 3)
    assert (skill.rate, skill.error) == (0.25, pytest.approx(0.125))
    assert (SkillSuccess().rate, SkillSuccess().error) == (0.0, 0.5)


def finished(ended="done", **skills):
    scores = {f"skill/{name}": value for name, value in skills.items()}
    return Episode(Prompt("p"), 0, 0, scores={**scores, "return": 7.0}, ended=ended)


def test_the_evaluator_reads_the_skills_of_finished_episodes():
    """Two skills in two episodes: 100 % and 50 %: sqrt(101 x 51) - 1 = 70.770468; an error counts apart."""
    episodes = [finished(wood=1.0, table=0.0), finished("time", wood=1.0, table=1.0), finished("error", wood=0.0)]
    assert GameScore()(episodes) == {"score": pytest.approx(70.770468, abs=1e-6), "errors": 1}
    assert math.isnan(GameScore()([finished("error")])["score"])
    with pytest.raises(KeyError, match="take sim=craft_worlds"):
        GameScore()([finished()])
