"""Exploration by visual uncertainty, by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, PolicyOutput, Prompt, Sampling
from mmrl.methods.entropy.vogue import (
    CleanContext,
    NoisyImages,
    UncertaintyBonus,
    bounded_bonus,
    noise_probability,
    symmetric_kl,
)
from tests.laws.example import Example

LAWS = [Example(UncertaintyBonus(rows=3, context="clean"), scores=True)]

P, Q = torch.tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0.5, 0.3, 0.2]).log()
PROMPT = Prompt("digits/train/0", ({"role": "user", "content": [{"type": "image"}]},),
                (np.full((4, 4, 3), 128, np.uint8),))  # fmt: skip


def test_the_bonuses_by_hand():
    # (.2 log 1.4 + -.1 log .667 + -.1 log .5) / 2 = .088578; the bound is .8 / 2
    apart = symmetric_kl(P, Q)
    assert_close(apart, torch.tensor(0.088578), atol=1e-6, rtol=0)
    assert_close(symmetric_kl(Q, P), apart) and assert_close(symmetric_kl(P, P), torch.tensor(0.0))
    assert_close(bounded_bonus(apart, torch.tensor(-0.8), 1.0, 2.0), torch.tensor(0.088578), atol=1e-6, rtol=0)
    entropy = -(Q.exp() * Q).sum()  # 1.029653, times .4 is .411861
    assert_close(bounded_bonus(entropy, torch.tensor(0.8), 0.4, 2.0), torch.tensor(0.4))
    assert bounded_bonus(entropy, torch.tensor(0.0), 0.4, 2.0) == 0


class Seen(torch.nn.Module):
    """P in the context 0, Q in the context 1."""

    def forward(self, batch):
        table = torch.stack([P, Q])[batch["obs.x"]].unsqueeze(1).expand(-1, 2, -1)
        entropy = -(table.exp() * table).sum(-1)
        return PolicyOutput(table[..., 0], entropy, extra={"choice_logprobs": table})


def test_advantages_by_hand():
    """The first row saw Q and would see P without noise, the second saw no noise, the third has no advantage."""
    batch = Batch(
        **{"obs.x": torch.tensor([1, 1, 1]), "other.clean.x": torch.tensor([0, 1, 0])}, prompt_id=torch.arange(3),
        action_mask=torch.tensor([[1, 1], [1, 0], [1, 1]]).bool(),
        advantages=torch.tensor([[0.8, 0.8], [-4.0, 0.0], [0.0, 0.0]]),
    )  # fmt: skip
    ctx = Context(None, None, Seen(), Sampling(), seed=0, iteration=0)
    out = UncertaintyBonus(rows=2)(batch, ctx)["advantages"]
    # .8 + .4 + .088578; -4 + .411861 (the bound is 2)
    expected = torch.tensor([[1.288578, 1.288578], [-3.588139, 0.0], [0.0, 0.0]])
    assert_close(out, expected, atol=1e-6, rtol=0)


class Engine:
    """Keeps what it is asked."""

    def sample(self, requests, sampling):
        self.images = [request.observation["images"][0] for request in requests]
        zero = torch.zeros(1)
        return [Completion({}, zero.long(), zero, torch.ones(1).bool(), "1") for _ in requests]


def play(rollout, iteration, seed=0):
    engine = Engine()
    ctx = Context(None, engine, None, Sampling(), seed=seed, iteration=iteration, group_size=2)
    episodes = rollout.collect([(0, PROMPT), (1, replace(PROMPT, key="digits/train/1"))], ctx)
    assert all((episode.prompt.images[0] == 128).all() for episode in episodes)  # as the verifier knows the problem
    return engine.images


def test_iterations_with_noise_become_rarer():
    rollout = NoisyImages(iterations=40)
    assert [noise_probability(i, 40) for i in (0, 20, 40, 60)] == [1.0, 0.5, 0.0, 0.0]
    noisy = play(rollout, 0)
    assert all(image.dtype == np.uint8 and image.std() > 30 for image in noisy)
    assert (noisy[0] == noisy[1]).all() and (noisy[0] != noisy[2]).any()  # alike for the answers to one prompt
    assert all((image == 128).all() for image in play(rollout, 40))
    branches = [(play(rollout, 20, seed)[0] != 128).any() for seed in range(40)]
    assert 10 <= sum(branches) <= 30


def test_the_clean_context_is_that_of_the_prompt():
    class Encoding:
        def encode(self, raw):
            return {"mean": torch.tensor(float(raw["images"][0].mean()))}

    ctx = Context(None, Engine(), Encoding(), Sampling(), seed=0, iteration=0, group_size=1)
    (episode,) = CleanContext()(NoisyImages(iterations=1).collect([(0, PROMPT)], ctx), ctx)
    assert episode.turns[0].completion.others["clean"]["mean"] == 128


def test_refusals():
    with pytest.raises(ValueError, match="iterations"):
        NoisyImages(iterations=0)
    with pytest.raises(ValueError, match="beta_vision must be > 0"):
        UncertaintyBonus(beta_vision=0.0)
    ctx = Context(None, Engine(), None, Sampling(), seed=0, iteration=0)
    with pytest.raises(ValueError, match="no images"):
        NoisyImages().collect([(0, replace(PROMPT, images=()))], ctx)


def test_the_divergence_of_a_row_is_the_mean_over_its_choices():
    """The context changes the first token alone, and the second is not the policy's: .8 + .4 + .088578."""

    class First(torch.nn.Module):
        def forward(self, batch):
            first = torch.stack([P, Q])[batch["obs.x"]]
            table = torch.stack([first, P.expand_as(first)], 1)
            entropy = -(table.exp() * table).sum(-1)
            return PolicyOutput(table[..., 0], entropy, extra={"choice_logprobs": table})

    batch = Batch(
        **{"obs.x": torch.tensor([1]), "other.clean.x": torch.tensor([0])}, prompt_id=torch.arange(1),
        action_mask=torch.tensor([[True, False]]), advantages=torch.tensor([[0.8, torch.nan]]),
    )  # fmt: skip
    ctx = Context(None, None, First(), Sampling(), seed=0, iteration=0)
    out = UncertaintyBonus(rows=2)(batch, ctx)["advantages"]
    assert_close(out, torch.tensor([[1.288578, 0.0]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_noise_has_a_tenth_of_the_largest_value_and_is_clipped(level):
    """A grey image has a standard deviation of 25.5; a black one no value near 255, a white one none near 0."""
    prompt = replace(PROMPT, images=(np.full((64, 64, 3), level, np.uint8),))
    engine = Engine()
    ctx = Context(None, engine, None, Sampling(), seed=0, iteration=0, group_size=1)
    NoisyImages(iterations=40, std=0.1).collect([(0, prompt)], ctx)
    (image,) = engine.images
    assert np.abs(image.astype(float) - level).max() < 150
    if level == 128:
        assert image.std() == pytest.approx(25.5, abs=0.5)
