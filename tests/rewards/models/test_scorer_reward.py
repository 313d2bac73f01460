"""The score of a frozen scorer of the run: equal to the classifier alone, thoughts left out, and refused."""

import pytest
from transformers import AutoModelForSequenceClassification

from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Sampling
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rewards.models.learned import ClassifierReward
from mmrl.rewards.models.scorer import ScorerReward, response_of
from tests.policies.text.oracle import TINY
from tests.rewards.judges.episodes import group_of

ANSWERS = ["4", "<think>2, 3, 4</think>It is 4", "<think>2, 3", "5</think>4", ""]


@pytest.fixture(scope="module")
def scorer():
    return ScoringPolicy(config=dict(TINY)).eval()


def bound(reward, scorer):
    return reward.bind(Context(None, None, None, Sampling(), seed=0, iteration=0, models={"reward_model": scorer}))


@pytest.mark.parametrize(
    "thoughts, responses",
    [
        ("scored", ANSWERS),
        ("removed", ["4", "It is 4", "", "4", ""]),
        ("required", ["", "It is 4", "", "", ""]),
    ],
)
def test_scores_are_those_of_the_saved_classifier(thoughts, responses, scorer, tmp_path):
    """Beside transformers' classifier that reads the responses alone, one by one."""
    assert [response_of(text, thoughts) for text in ANSWERS] == responses
    scores = [row["reward_model"] for row in bound(ScorerReward(thoughts=thoughts), scorer).scores(group_of(ANSWERS))]
    scorer.save_pretrained(tmp_path)
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path).config.num_labels == 1
    expected = ClassifierReward(str(tmp_path), device="cpu", batch_size=1)(group_of(responses))
    assert scores == pytest.approx(expected, abs=1e-5) and len(set(expected)) > 1


def test_a_missing_model_and_wrong_arguments_are_refused(scorer):
    with pytest.raises(ConfigError, match=r"reward\.model='judge' is no model of the run"):
        bound(ScorerReward("judge"), scorer)
    with pytest.raises(ConfigError, match="outside of its rollouts"):
        ScorerReward().scores(group_of(["4"]))
    with pytest.raises(ValueError, match="thoughts must be"):
        ScorerReward(thoughts="hidden")
