"""A choice that is imitated has a log-prob of the whole distribution and a gradient, however the rows were sampled."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Context, Episode, PolicyOutput, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.guidance.seele import Hinted, HintNegativeLogLikelihood, _after
from mmrl.methods.rewards.perfrl import RRHFLoss
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.imitation_bins import SmoothedNegativeLogLikelihood
from mmrl.objectives.preference import ORPOLoss
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.offline.demonstrations import demonstrated_choices
from tasks.arithmetic import Arithmetic
from tests.laws.heads import pi0_fast_policy
from tests.laws.heads import sampled as sampled_heads
from tests.laws.law_examples import TERMS, Tabular, rows
from tests.policies.text.oracle import TINY, decided, plain_logits
from tests.policies.text.test_vision import LLAVA
from tests.policies.vla.small.test_token import policy as token_policy
from tests.policies.vla.small.test_token import sampled
from tests.tiny_recipes import Counting

IMITATED = {"imitation_mask", "imitation_weights"}
TERMS_THAT_IMITATE = [
    example
    for example in TERMS
    if example.part.reads() & IMITATED or type(example.part) in (NegativeLogLikelihood, RRHFLoss, ORPOLoss)
]
TRUNCATIONS = {
    "whole": {},
    "first": {"top_k": 1},
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.3},
    "all": {"top_k": 9, "top_p": 0.8, "min_p": 0.05, "temperature": 0.6},
}
LAYOUTS = {
    "alone": lambda prompts: [[(row,)] for prompt in prompts for row in prompt],
    "padded": lambda prompts: [[(row,) for prompt in prompts for row in prompt]],
    "shared": lambda prompts: [[tuple(prompt) for prompt in prompts]],
    "packed": lambda prompts: [[tuple(row for prompt in prompts for row in prompt)]],
}
truncations = pytest.mark.parametrize("truncation", TRUNCATIONS.values(), ids=TRUNCATIONS)


@pytest.mark.parametrize("example", TERMS_THAT_IMITATE, ids=lambda example: example.name)
def test_imitation_losses_read_the_whole_distribution(example):
    """Log-probs renormalised over a support of one id are 0, and no loss that imitates looks at them."""
    batch, policy = rows(example.per_row), Tabular(2, example.per_row)
    out = policy(batch)
    truncated = replace(
        out, logprobs=torch.zeros_like(out.logprobs), extra={**out.extra, "full_logprobs": out.logprobs}
    )
    if example.part.others():
        others = {name: replace(o, extra={"full_logprobs": o.logprobs}) for name, o in out.others.items()}
        truncated = replace(truncated, others=others)
    assert_close(example.part(truncated, batch), example.part(out, batch), rtol=0, atol=0)
    assert example.part(truncated, batch).abs().sum() > 0


def test_every_loss_that_imitates_is_tried():
    names = {type(example.part).__name__ for example in TERMS_THAT_IMITATE}
    assert {"NegativeLogLikelihood", "HintNegativeLogLikelihood", "EditImitation", "RRHFLoss", "ORPOLoss"} <= names


# ---------------------------------------------------------------- policies that write


@pytest.fixture(scope="module")
def writers():
    torch.manual_seed(0)
    text = decided(TextPolicy(config=TINY)).eval()
    sees = decided(VisionLanguagePolicy(config={**LLAVA, "text_config": TINY})).eval()
    return {"text": (text, Counting()), "vlm": (sees, Counting(image=True, without=3))}


@pytest.mark.parametrize("kind", ["text", "vlm"])
@truncations
def test_a_text_policy_scores_hints_samples_and_demonstrations(writers, kind, truncation):
    policy, task = writers[kind]
    sampling = Sampling(max_tokens=4, **truncation)
    done = _sample_with_hints(policy, task, sampling) + [_demonstrate(policy, task[5])]
    episodes = [Episode(task[0], i // 3, i % 3, [Turn(completion)]) for i, completion in enumerate(done)]
    batch = collate(episodes, policy)
    imitated = batch.score_mask
    expected = torch.stack([_plain_logprobs(policy, c, float(t), imitated) for c, t in zip(done, batch["temperature"])])
    prompts = [[i for i in range(batch.rows) if batch["prompt_id"][i] == p] for p in batch["prompt_id"].unique()]
    restricted = batch.get("support_sizes", torch.zeros_like(batch["action"])) > 0
    assert restricted.any() == bool(truncation)
    for name, layout in LAYOUTS.items():
        out = policy.score_packed(policy.extract_tokens(batch), layout(prompts), batch)
        assert_close(out.full_logprobs[imitated], expected[imitated], atol=2e-5, rtol=1e-5, msg=name)
        free = imitated & ~restricted
        assert_close(out.logprobs[free], expected[free], atol=2e-5, rtol=1e-5, msg=name)
        hints = -HintNegativeLogLikelihood()(out, batch)
        assert (hints[:-1] < 0).all() and hints[-1] == 0
        _require_gradients(out.full_logprobs[imitated], policy)


def _sample_with_hints(policy, task, sampling):
    """Three completions of three prompts after the hint 12, which stands among their choices."""
    engine, hint = LocalEngine(), policy.tokenize("12")
    engine.sync(policy, 0)
    prompts = [task[index] for index in range(3) for _ in range(3)]
    requests = [Request(p.observation, i, hint, prompt_id=p.key) for i, p in enumerate(prompts)]
    observations = {p.key: policy.encode(p.observation) for p in prompts}
    made = [replace(c, observation=observations[p.key]) for c, p in zip(engine.sample(requests, sampling), prompts)]
    return [_after(hint, completion, "12") for completion in made]


def _demonstrate(policy, prompt):
    done = demonstrated_choices(policy.tokenize("347"), policy.encode(prompt.observation), "347")
    return replace(done, prompt_id=prompt.key, extra={**done.extra, "imitation_mask": torch.zeros(3, dtype=torch.bool)})


def _plain_logprobs(policy, completion, temperature, like):
    logprobs = (plain_logits(policy, completion) / temperature).log_softmax(-1)
    row = logprobs.gather(1, completion.action[:, None])[:, 0]
    return torch.nn.functional.pad(row, (0, like.shape[1] - len(row)))


def _require_gradients(logprobs, policy):
    """Every one of the log-probs has a gradient: those of a few, one by one."""
    weight = policy.model.get_output_embeddings().weight
    for logprob in logprobs[:: max(len(logprobs) // 4, 1)]:
        (slope,) = torch.autograd.grad(logprob, weight, retain_graph=True)
        assert slope.abs().sum() > 0


def test_hints_are_imitated_under_truncation(writers):
    """SEELE's rollout with top_k=1: the mean log-prob of hint tokens is that without truncation."""
    policy, task = writers["text"][0], Arithmetic(digits=(1, 1, 1, 1), steps=True)
    engine = LocalEngine()
    engine.sync(policy, 0)
    scorer = Scorer(task, WeightedSum({"exact": 1.0}))
    sampling = Sampling(max_tokens=3, top_k=1)
    ctx = Context(task, engine, policy, sampling, seed=0, iteration=0, group_size=4, collector=scorer)
    episodes = Hinted(rounds=2, hint_fraction=0.5).collect([(0, task[0]), (1, task[1])], ctx)
    batch = collate(episodes, policy)
    whole = Batch({name: column for name, column in batch.items() if "support" not in name})
    loss = HintNegativeLogLikelihood()
    assert (batch["support_sizes"][batch["imitation_mask"]] == 0).all()
    assert_close(loss(policy(batch), batch), loss(policy(whole), whole))
    assert (loss(policy(batch), batch) > 1).all()


# ---------------------------------------------------------------- policies that act


@truncations
def test_a_token_vla_scores_samples_and_demonstrations(truncation):
    model = token_policy()
    batch = sampled(model, Sampling(**truncation))
    if "support_ids" in batch:
        batch["support_ids"][:2] = -1  # two rows of an expert
    whole = Batch({name: column for name, column in batch.items() if name != "support_ids"})
    out, expected = model(batch), model(whole)
    assert_close(out.full_logprobs, expected.logprobs)
    assert_close(out.logprobs[:2], expected.logprobs[:2])
    smoothed = SmoothedNegativeLogLikelihood(width=2.0)
    assert_close(smoothed(out, batch), smoothed(expected, whole))
    grads = torch.autograd.grad(out.full_logprobs.sum(), list(model.transformer.parameters()), allow_unused=True)
    assert sum(grad.abs().sum() for grad in grads if grad is not None) > 0


@truncations
def test_a_categorical_policy_scores_samples_and_demonstrations(truncation):
    torch.manual_seed(0)
    policy = ControlPolicy(observation_dims=3, actions=6, hidden=[8])
    sampling = Sampling(**truncation)
    state = torch.randn(5, 3)
    action = policy.act({"state": state}, sampling, Noise(range(5)))
    temperature = torch.full((5,), sampling.temperature)
    batch = Batch({"obs.state": state}, action=action.action, temperature=temperature, **action.extra)
    if "support_ids" in batch:
        batch["support_ids"][:2] = -1
    whole = Batch({name: column for name, column in batch.items() if name != "support_ids"})
    out, expected = policy(batch), policy(whole)
    assert_close(out.full_logprobs, expected.logprobs)
    assert_close(out.logprobs[:2], expected.logprobs[:2])
    assert (out.full_logprobs > MASKED_LOGIT).all() and isinstance(out, PolicyOutput)


@truncations
def test_pi0_fast_scores_samples_and_demonstrations(truncation):
    torch.manual_seed(0)
    policy = pi0_fast_policy().eval()
    batch = sampled_heads(policy, 4, Sampling(**truncation))
    if "support_ids" in batch:
        batch["support_ids"][:2] = -1  # two rows of an expert
    whole = Batch({name: column for name, column in batch.items() if name != "support_ids"})
    out, expected, inside = policy(batch), policy(whole), batch["action_mask"]
    assert_close(out.full_logprobs[inside], expected.logprobs[inside])
    assert_close(out.logprobs[:2][inside[:2]], expected.logprobs[:2][inside[:2]])
    assert (out.full_logprobs[inside] < 0).all()
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    for logprob in out.full_logprobs[inside][::5]:
        slopes = torch.autograd.grad(logprob, weights, retain_graph=True, allow_unused=True)
        assert sum(slope.abs().sum() for slope in slopes if slope is not None) > 0
