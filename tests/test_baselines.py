"""Recipes that others are compared with compute what their papers say, with nothing hidden in front of them."""

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch.testing import assert_close

from mmrl.config.compose import compose
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.experiments.experiment import read_experiment
from tests.composed_words import compose_words
from tests.test_recipes import RECIPES, plain_of

GROUPS, SIZE = 8, 8


def transformed(recipe: str, episodes: list[Episode]) -> list[Episode]:
    """What a recipe's transforms leave of some episodes."""
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0)
    for spec in plain_of(recipe).data.transforms.values():
        if spec is not None:
            episodes = instantiate(spec)(episodes, ctx)
    return episodes


def test_reinforce_weighs_problems_by_the_gradient_of_their_success_rate():
    """One choice with success rate p: E[r (r - p)] = p (1 - p), so .25 and .0475 at .5 and .95: 5.26 to one.

    Groups without a difference left out, it would be 28.8 to one: a baseline over the group.
    """
    rng, gradient = np.random.default_rng(0), {0.5: 0.0, 0.95: 0.0}
    for _ in range(2500):
        drawn = {p: rng.random(SIZE) < p for p in gradient}
        result = [
            Episode(Prompt(f"p/train/{g}"), g, a, reward=float(right), info={"p": p})
            for g, (p, episodes) in enumerate(drawn.items())
            for a, right in enumerate(episodes)
        ]
        kept = transformed("reinforce", result)
        for episode in kept:
            p = episode.info["p"]
            gradient[p] += episode.reward * (episode.reward - p) / len(kept)
    assert gradient[0.5] / gradient[0.95] == pytest.approx(0.25 / 0.0475, rel=0.06)


@pytest.mark.parametrize("recipe", ["dr_grpo", "rloo"])
def test_groups_without_a_difference_count_in_the_denominator(recipe):
    """One of 8 groups is mixed: each token still weighs 1 / (64 rows * length), not 1 / (8 rows * length)."""
    places = [(g, a) for g in range(GROUPS) for a in range(SIZE)]
    result = [Episode(Prompt(f"p/train/{g}"), g, a, reward=float(g == 0 and a < 4)) for g, a in places]
    kept = transformed(recipe, result)
    assert len(kept) == GROUPS * SIZE
    plain = plain_of(recipe)
    weighting = instantiate(plain.data.weighting)
    batch = Batch(action_mask=torch.ones(len(kept), 2, dtype=torch.bool))
    expected = torch.full((64, 2), 1 / (64 * plain.data.sampling.max_tokens))
    assert_close(weighting(batch, lambda value: value), expected)


def test_no_recipe_hides_a_filter_in_front_of_a_constant_denominator_or_a_reward_without_baseline():
    for recipe in RECIPES:
        data = plain_of(recipe).data
        weighting = data.get("weighting") or {}
        advantage = (data.get("annotators") or {}).get("group_advantage") or {}
        bare = "group_advantage" in (data.get("pipeline") or []) and advantage.get("baseline", "mean") is None
        if weighting.get("_target_", "").endswith("ConstantLength") or bare:
            names = [spec["_target_"].rsplit(".", 1)[1] for spec in data.transforms.values() if spec is not None]
            assert not {"DropZeroVariance", "DynamicSampling", "KeepPassRates"} & set(names), recipe


def test_score_function_losses_take_one_step_on_each_batch_also_as_baselines():
    sides = [(recipe, f"recipe={recipe}") for recipe in RECIPES]
    for recipe in RECIPES:
        experiment = read_experiment(recipe)
        sides += [(recipe, *words) for words in (experiment.sides().values() if experiment else ())]
    for recipe, *words in sides:
        plain = compose_words(tuple(words))
        term = ((plain.model.get("objective") or {}).get("terms") or {}).get("policy") or {}
        if term.get("_target_", "").endswith("PolicyGradient") and not term.get("importance_weights"):
            reported = "off-policy" in plain.paper.differs  # a recipe that takes more says so
            reported |= "rollout=logged" in words  # answers of a log are off-policy from the first step on
            assert (plain.data.num_minibatches, plain.data.update_epochs) == (1, 1) or reported, (recipe, words)


def test_running_out_of_time_is_a_failure_where_success_is_the_reward():
    """A value that is bootstrapped there would learn from itself alone that failures are worth something."""
    actual = set()
    for recipe in RECIPES:
        data = plain_of(recipe).data
        if "gae" in (data.get("pipeline") or []) and data.rollout["_target_"].endswith("EpisodicRollout"):
            actual.add(recipe)
            assert data.rollout.get("bootstrap") is False, recipe
    assert actual >= {"ppo_vla", "push_ppo_vla", "suite_vla", "flow_reach_ppo", "rl100", "dppo", "flow_sde_ppo"}


def test_token_rewards_of_prime_have_the_scale_of_the_model_that_gives_them():
    cfg = plain_of("prime")
    assert cfg.data.annotators.process.scale == cfg.model.objective.terms.outcome.scale == 2.0
    changed = compose(["recipe=prime", "objective.terms.outcome.scale=0.5", "run_dir=same"])
    assert OmegaConf.to_container(changed.data.annotators.process, resolve=True)["scale"] == 0.5
