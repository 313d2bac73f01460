"""A second context for the same answers: what is hidden, what is scored, and what the loss makes of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.logprobs import Logprobs
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.vision.papo import BlackPatches, OtherContext
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.objective import Objective
from mmrl.objectives.regularizer import KL
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.policies.text.oracle import TINY, completions, decided

LAWS = [lambda: OtherContext("blind", BlackPatches())]

VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
    "vision_use_head": False,
}


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    text = {"model_type": "qwen2", **TINY}
    return decided(VisionLanguagePolicy(config={"text_config": text, "vision_config": VISION})).eval()


def played(policy, words=("a", "much longer")) -> list[Episode]:
    rng = np.random.default_rng(0)
    prompts = [
        Prompt(
            f"seen/train/{i}",
            ({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]},),
            (rng.integers(1, 256, (16, 16, 3), dtype=np.uint8),),
        )
        for i, text in enumerate(words)
    ]
    done = completions(policy, [p for p in prompts for _ in range(2)], Sampling(max_tokens=4))
    return [Episode(prompts[i // 2], i // 2, i % 2, [Turn(replace(c, prompt_id=i // 2))]) for i, c in enumerate(done)]


def context(policy, iteration=0):
    return Context(None, None, policy, Sampling(), seed=0, iteration=iteration)


def test_hand_computed():
    # log-ratios log(.4 / .8) and 0: k3 = .5 - 1 + log 2 = .193147 and 0; entropies -mean log p = .458145 and .804719
    logprobs, blind = (torch.tensor([p]).log() for p in ([0.8, 0.5], [0.4, 0.5]))
    out = PolicyOutput(logprobs, logprobs, others={"blind": PolicyOutput(blind, blind)})
    batch = Batch(action_mask=torch.ones(1, 2).bool(), loss_weights=torch.full((1, 2), 0.5))
    assert_close(KL(context="blind")(out, batch), torch.tensor([[0.193147, 0.0]]), rtol=0, atol=1e-6)
    terms = {"p": KL(context="blind"), "h": NegativeLogLikelihood(), "b": NegativeLogLikelihood(context="blind")}
    objective = Objective(terms, {"p": -0.01, "h": 0.03, "b": 0.03})
    loss, sums = objective(out, batch)
    assert {name: float(part) for name, part in objective.average(sums).items()} == pytest.approx(
        {"p": 0.096574, "p/mean": 0.096574, "h": 0.458145, "b": 0.804719}, abs=1e-6
    )
    assert float(loss) == pytest.approx(-0.000966 + 0.037886, abs=1e-6)


def test_beyond_the_cap_there_is_no_gradient():
    blind = torch.zeros(1, 2)
    logprobs = torch.tensor([[-4.0, -0.1]], requires_grad=True)  # e^4 - 5 = 49.6
    out = PolicyOutput(logprobs, logprobs, others={"blind": PolicyOutput(blind, blind)})
    apart = KL(context="blind", cap=10.0)(out, Batch(action_mask=torch.ones(1, 2).bool()))
    apart.sum().backward()
    assert apart[0, 0] == 10 and logprobs.grad[0, 0] == 0 and logprobs.grad[0, 1] != 0


def test_patches_are_black_or_as_they_were():
    raw = {"messages": (), "images": (np.full((30, 28, 3), 7, dtype=np.uint8),)}
    shares = []
    for seed in range(50):
        (seen,) = BlackPatches(0.6, 14)(raw, np.random.default_rng(seed))["images"]
        patches = [seen[i : i + 14, j : j + 14] for i in range(0, 30, 14) for j in range(0, 28, 14)]
        assert seen.dtype == np.uint8 and all(len(np.unique(patch)) == 1 for patch in patches)
        shares.append(np.mean([patch.max() == 0 for patch in patches]))
    assert 0.5 < np.mean(shares) < 0.7  # 300 patches, 0.6 +- 3.5 standard deviations of .028
    assert (raw["images"][0] == 7).all()
    with pytest.raises(ValueError, match="no images"):
        BlackPatches()({"messages": (), "images": ()}, np.random.default_rng(0))


def test_the_same_answer_is_scored_in_the_other_context(policy):
    ctx = context(policy)
    episodes = OtherContext("blind", BlackPatches(0.5, 8))(played(policy), ctx)
    batch = collate(episodes, policy)
    own, other = policy(batch), policy(batch.with_context("blind"))
    assert (own.logprobs - other.logprobs)[batch["action_mask"]].abs().max() > 1e-3
    annotator = Logprobs(column="other_logprobs", context="blind")(batch, ctx)
    assert_close(annotator["other_logprobs"], other.logprobs)
    # one context for all episodes of a prompt, another in the next iteration, the same again on a resume
    pixels = [e.turns[0].completion.others["blind"]["pixel_values"] for e in episodes]
    assert pixels[0] is pixels[1] and batch.with_context("blind")["prompt_id"].tolist() == [0, 0, 1, 1]
    again, later = (
        collate(OtherContext("blind", BlackPatches(0.5, 8))(played(policy), context(policy, i)), policy) for i in (0, 1)
    )
    name = "other.blind.pixel_values"
    assert torch.equal(again[name].values, batch[name].values)
    assert not torch.equal(later[name].values, batch[name].values)


def test_nothing_hidden_changes_nothing(policy):
    batch = collate(OtherContext("blind", BlackPatches(0.0, 8))(played(policy), context(policy)), policy)
    out = policy(batch)
    out.others = {"blind": policy(batch.with_context("blind"))}
    assert_close(KL(context="blind")(out, batch), torch.zeros(batch["action_mask"].shape), rtol=0, atol=1e-6)


def test_what_is_missing_is_named(policy):
    from mmrl.commands.cli import CLI
    from mmrl.config.compose import compose, to_lightning

    with pytest.raises(ConfigError, match=r"blind.*data\.transforms"):
        CLI(to_lightning(compose(["recipe=papo", "data.transforms.blind=null"])), build=False)
    batch = collate(played(policy), policy)
    with pytest.raises(KeyError, match="no context 'blind'"):
        batch.with_context("blind")
    episodes = played(policy)
    episodes[:2] = OtherContext("blind", BlackPatches())(episodes[:2], context(policy))
    with pytest.raises(ValueError, match="2 of 4 rows have no context 'blind'"):
        collate(episodes, policy)
