"""Asynchronous RLHF: the two losses by hand, the lag of what a run learns from, and its KL to the start."""

import csv
import math

import pytest
import torch
from hydra.utils import instantiate

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Sampling
from mmrl.evaluation.boundary.perplexity import OWN, START
from mmrl.methods.asynchronous.async_rlhf import AnswerKL
from tests.test_recipes import words_of

RECIPES = ("async_rlhf", "async_rlhf_rloo", "async_rlhf_ppo")


def config(recipe):
    return compose([f"recipe={recipe}"])


def test_the_pair_loss_by_hand():
    """beta (d_better - d_worse) = .1 (2 - (-1)) = .3: -log sigmoid(.3) = .554355; equal log-ratios give log 2."""
    term = instantiate(config("async_rlhf").model.objective.terms.preference)
    rows = {"preference": torch.tensor([1.0, -1.0]), "group": torch.zeros(2).long()}
    batch = Batch(**rows, action_mask=torch.ones(2, 1).bool(), ref_logprobs=torch.tensor([[-3.0], [-1.0]]))
    loss = term(PolicyOutput(torch.tensor([[-1.0], [-2.0]]), torch.zeros(2, 1)), batch)
    assert loss.tolist() == pytest.approx([0.554355] * 2, abs=1e-6)
    same = term(PolicyOutput(torch.tensor([[-3.0], [-1.0]]), torch.zeros(2, 1)), batch)
    assert same.tolist() == pytest.approx([math.log(2)] * 2)


def test_proximal_rloo_by_hand():
    """Four completions of one prompt, rewards 1, 0, 1/2, 1/2: advantages 2/3, -2/3, 0, 0.

    Ratios of whole completions are 1.5, .5, 1, 1, each the product over two tokens: min(1.5 2/3, 1.2 2/3) = .8 and
    min(.5 (-2/3), .8 (-2/3)) = -.533333, so that the loss is -(.8 - .533333) / 4 = -.066667.
    """
    cfg = config("async_rlhf_rloo")
    rewards, mask = torch.tensor([1.0, 0.0, 0.5, 0.5]), torch.ones(4, 2).bool()
    batch = Batch(
        group=torch.zeros(4).long(),
        episode=torch.arange(4),
        episode_reward=rewards,
        action_mask=mask,
        behavior_logprobs=torch.full((4, 2), -1.0),
    )
    ctx = Context(None, None, None, Sampling(), 0, 0)
    batch = instantiate(cfg.data.annotators.group_advantage)(batch, ctx)
    assert batch["advantages"][:, 0].tolist() == pytest.approx([2 / 3, -2 / 3, 0, 0])
    ratios = torch.tensor([1.5, 0.5, 1.0, 1.0]).log()[:, None] * torch.tensor([0.25, 0.75])
    term = instantiate(cfg.model.objective.terms.policy)
    loss = term(PolicyOutput(batch["behavior_logprobs"] + ratios, torch.zeros(4, 2)), batch)
    weights = instantiate(cfg.data.weighting)(batch, lambda total: total)
    assert float((loss * weights).sum()) == pytest.approx(-0.066667, abs=1e-6)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_losses_have_as_many_samples_of_the_same_reward_model(recipe):
    cfg = config(recipe)
    assert cfg.data._target_.endswith("AsyncRolloutData") and cfg.data.staleness == 1 and cfg.model.reference
    assert (cfg.data.num_prompts, cfg.data.group_size, cfg.data.num_minibatches) == (64, 2, 1)
    assert cfg.data.reward.weights.reward_model == 1 and cfg.model.frozen_models.reward_model._target_


def test_a_run_learns_from_weights_of_as_many_iterations_before(tmp_path):
    """Iteration k learns from what the weights of max(0, k - 2) sampled."""
    words = [word for word in words_of("async_rlhf", tmp_path) if "max_epochs" not in word and "logger" not in word]
    CLI(to_lightning(compose([*words, "trainer.max_epochs=4", "data.staleness=2"]))).fit()
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("rollout/staleness")]
    assert [float(row["rollout/staleness"]) for row in rows] == [0, 1, 2, 2]


def answer(tokens, own, start, ended="done"):
    info = {"tokens": tokens, OWN: own, START: start}
    return Episode(Prompt("t/held_out/0"), 0, 0, ended=ended, info=info)


def test_the_kl_of_answers_by_hand():
    """4 tokens at -.5 against -1, 2 at -1 against -.5: 2 and -1 nats, mean .5, s = 3 / sqrt(2), error s / sqrt(2)."""
    episodes = [answer(4, -0.5, -1.0), answer(2, -1.0, -0.5), answer(9, 0.0, -9.0, ended="error")]
    assert AnswerKL()(episodes) == pytest.approx({"mean": 0.5, "standard_error": 1.5, "errors": 1})
    assert math.isnan(AnswerKL()(episodes[:1])["standard_error"]) and math.isnan(AnswerKL()(episodes[2:])["mean"])
    with pytest.raises(KeyError, match=r"has no info \['logprob_start'\]; add .*model\.reference=true"):
        del episodes[0].info[START]
        AnswerKL()(episodes)
