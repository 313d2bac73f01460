"""A second model that learns beside the policy: by its own terms, at its own rate, kept in checkpoints."""

import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from tests.tiny_recipes import fit

PRIME = (
    "data.annotators.reward={_target_: mmrl.annotators.logprobs.Logprobs, column: reward_logprobs, model: reward}",
    "data.pipeline=[reference, reward, group_advantage]",
    "model.reference=true",
    "model.auxiliary_models={reward: 0.001}",
    "objective.terms.outcome={_target_: mmrl.methods.advantages.prime.OutcomeCrossEntropy, scale: 1.0}",
    "model.scheduler.total_iters=20",
    "data.reward.weights={exact: 1.0}",
)


def weights(left, prefix):
    return {k.removeprefix(prefix): v for k, v in left["weights"].items() if k.startswith(prefix)}


def test_it_starts_as_the_policy_and_goes_its_own_way(tmp_path):
    left = fit(tmp_path / "whole", *PRIME, "trainer.max_epochs=4")
    policy, reward, start = (weights(left, p) for p in ("policy.", "models.reward.", "models.reference."))
    assert set(policy) == set(reward) == set(start)
    assert any(not torch.equal(reward[k], start[k]) for k in reward)
    assert any(not torch.equal(reward[k], policy[k]) for k in reward)
    assert all(k in left["metrics"][-1] for k in ("train/outcome", "train/outcome/accuracy"))
    # the policy learns as if the other model were not there
    alone = fit(tmp_path / "alone", *PRIME, "objective.coefficients={outcome: 0.0}", "trainer.max_epochs=4")
    other = weights(alone, "policy.")
    assert all(torch.allclose(policy[k], other[k], atol=1e-5) for k in policy)
    still = weights(alone, "models.reward.")
    assert all(torch.equal(still[k], start[k]) for k in start)
    # and a run that was broken off goes on with both
    fit(tmp_path / "half", *PRIME, "trainer.max_epochs=2")
    checkpoint = tmp_path / "half" / "checkpoints" / "last.ckpt"
    again = fit(tmp_path / "again", *PRIME, "trainer.max_epochs=4", f"ckpt_path='{checkpoint}'")
    assert all(torch.equal(left["weights"][k], again["weights"][k]) for k in left["weights"])


def test_a_term_about_a_model_that_there_is_not_is_refused():
    words = ["recipe=prime", "model.auxiliary_models=null", "data.pipeline=[reference, group_advantage]"]
    with pytest.raises(ConfigError, match=r"term 'outcome' asks for \['reward'\].*model\.auxiliary_models"):
        CLI(to_lightning(compose(words)), build=False)
    with pytest.raises(ConfigError, match=r"annotator 'reward' needs models \['reward'\]"):
        CLI(to_lightning(compose(words[:2])), build=False)
