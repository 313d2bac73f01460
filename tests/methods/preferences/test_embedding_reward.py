import pytest

from mmrl.config.compose import compose

SCORER = "policy._target_=mmrl.policies.text.scorer.ScoringPolicy"


@pytest.mark.parametrize("chosen", [("recipe=embedding_reward",), ("method=embedding_reward", "setting=reward_model")])
def test_the_perceptron_stays_with_a_pretrained_language_model(chosen):
    """Without `hidden` the whole classifier would be trained."""
    assert compose([*chosen]).model.policy.hidden == [256, 256, 256]
    assert compose([*chosen, SCORER, "policy.path=somewhere"]).model.policy.hidden == [256, 256, 256]
