"""Steps scored by a process reward model of the run: probabilities of the untouched classifier, and refusals."""

import pytest
import torch

from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Prompt, Sampling
from mmrl.policies.text.process.step_scorer import StepScoringPolicy
from mmrl.rewards.models.frozen_steps import FrozenStepScorer
from mmrl.rewards.steps import StepReward
from mmrl.rollouts.text.scripted import scripted_episode

TINY = {"model_type": "qwen2", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
TINY |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256}
TEXTS = ["a=3\nb=a+2=5\nc=b*a=5", "9", "a=3\n\nb=1\n"]


def context(**models):
    return Context(None, None, None, Sampling(), seed=0, iteration=0, models=models)


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return StepScoringPolicy(config=TINY)


@pytest.fixture
def episodes():
    prompt = Prompt("p", ({"role": "user", "content": "c=b*a;a=3;b=a+2;c?"},))
    return [scripted_episode(prompt, text) for text in TEXTS]


def probabilities(policy, text):
    """Of the untouched classifier after each step of a text alone; the last step gets its separator too."""
    out, prefix = [], "c=b*a;a=3;b=a+2;c?"
    for step in text:
        ids = policy.tokenizer(prefix + step.removesuffix("\n") + "\n", return_tensors="pt", add_special_tokens=False)
        with torch.no_grad():
            out.append(float(policy.model(ids["input_ids"]).logits[0, -1].softmax(-1)[1]))
        prefix += step.removesuffix("\n") + "\n"
    return out


def test_scores_are_those_of_the_classifier_after_each_step(policy, episodes):
    steps = [["a=3\n", "b=a+2=5\n", "c=b*a=5"], ["9"], ["a=3\n\n", "b=1\n"]]
    scores = FrozenStepScorer(batch_size=2).bind(context(step_scorer=policy)).score_steps(episodes, steps)
    for values, texts in zip(scores, steps, strict=True):
        assert values == pytest.approx(probabilities(policy, texts), abs=1e-5)


def test_a_reward_of_steps_asks_the_model_of_its_run(policy, episodes):
    reward = StepReward({"step_reward": 1.0}, scorer=FrozenStepScorer(), aggregation="min")
    scores = reward.bind(context(step_scorer=policy)).scores(episodes[:2])
    assert scores[0]["step_reward"] == pytest.approx(min(probabilities(policy, TEXTS[0].splitlines())), abs=1e-5)
    assert scores[1]["step_reward"] == pytest.approx(probabilities(policy, ["9"])[0], abs=1e-5)


def test_a_model_that_is_missing_or_scores_no_steps_is_refused(episodes):
    for models in ({}, {"step_scorer": torch.nn.Linear(1, 1)}):
        with pytest.raises(ConfigError, match="model='step_scorer' is no process reward model of the run"):
            FrozenStepScorer().bind(context(**models))
    with pytest.raises(ConfigError, match="outside of a run"):
        FrozenStepScorer()(episodes, [["a"]] * 3)
    with pytest.raises(ValueError, match="batch_size"):
        FrozenStepScorer(batch_size=0)
