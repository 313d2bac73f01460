"""`differs` names the numbers of a recipe that are not its paper's, and its claims of equality hold."""

import math
import re

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch.testing import assert_close

from mmrl.config.option_files import find_option
from mmrl.core.types import Context, Sampling
from mmrl.policies.vla.chains import FlowNoise, FlowSDE
from tests.composed_words import compose_words
from tests.laws.example import rows

FLOWS = ["flow_sde_grpo", "flow_sde_ppo", "flow_push", "flow_reach_ppo", "flow_noise_grpo", "flow_ppo_libero",
         "flow_ppo_metaworld", "flow_ppo_mt10"]  # fmt: skip
NUMBERS = [
    ("dqo", "model.objective.coefficients.value"),
    ("direct_advantage", "model.objective.terms.policy.beta"),
    ("rl100", "model.policy.chain.max_std"),
    ("relift", "data.transforms.hard.size"),
]


def told(recipe):
    """What differs from the paper, of the recipe and of its method."""
    plain = compose_words((f"recipe={recipe}",))
    method = OmegaConf.load(find_option("method", plain.choices.method).path)
    return f"{plain.paper.differs}; {method.paper.differs}"


@pytest.mark.parametrize(("recipe", "key"), NUMBERS)
def test_a_number_that_the_paper_has_otherwise_is_told(recipe, key):
    number = OmegaConf.select(compose_words((f"recipe={recipe}",)), key)
    assert re.search(rf"(?<![\d.]){re.escape(f'{number:g}')}(?!\d)", told(recipe))


@pytest.mark.parametrize("recipe", FLOWS)
def test_the_noise_of_pi_rl(recipe):
    """The paper's noise level 0.5 of Flow-SDE, and standard deviations from 0.08 to 0.16 of Flow-Noise."""
    chain = instantiate(compose_words((f"recipe={recipe}",)).model.policy.chain)
    if isinstance(chain, FlowSDE):
        assert chain.noise_level == 0.5 or f"noise level {chain.noise_level:g} in place of 0.5" in told(recipe)
    else:
        assert isinstance(chain, FlowNoise)
        assert f"deviations of {chain.min_std} to {chain.max_std} in place of 0.08 to 0.16" in told(recipe)


def test_the_learning_rate_of_bro_rl_follows_from_its_batch():
    """The paper's rule, times the root of the growth of the batch: a factor of 1 where the batch does not grow."""
    small, broad = (compose_words((f"recipe={name}",)) for name in ("grpo", "bro_rl"))
    growth = (broad.data.num_prompts * broad.data.group_size) / (small.data.num_prompts * small.data.group_size)
    assert broad.model.optimizer.lr == pytest.approx(small.model.optimizer.lr * math.sqrt(growth))
    assert broad.data.group_size >= 8 * small.data.group_size


def test_the_baseline_of_ttrv_cancels_the_entropy():
    data = compose_words(("recipe=ttrv",)).data
    batch, annotator = rows(per_row=False), instantiate(data.annotators.group_advantage)
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0)
    entropy = 0.75 * (batch["group"] % 3) / 3  # one number of a group
    plain = annotator(batch, ctx)["advantages"]
    assert_close(annotator(batch.with_columns(reward=batch["reward"] - entropy), ctx)["advantages"], plain)
    assert plain.any() and "cancelled" in told("ttrv") and entropy.unique().numel() > 1
