import pytest

from mmrl.config.compose import compose

SCORER = "policy._target_=mmrl.policies.text.scorer.ScoringPolicy"


@pytest.mark.parametrize(
    "chosen",
    [
        ("recipe=embedding_reward",),
        ("recipe=embedding_reward", SCORER, "policy.path=somewhere"),
        ("method=embedding_reward", "setting=pretrained_scorer", "policy.path=somewhere"),
    ],
)
def test_the_perceptron_stays_with_a_pretrained_language_model(chosen):
    """Without `hidden` the whole classifier would be trained."""
    assert compose(chosen).model.policy.hidden == [256, 256, 256]
