"""Logits in chunks: scores and gradients are those of whole logits, and models that change their logits are found."""

import logging

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Sampling
from mmrl.methods.entropy.siren import NucleusEntropy
from mmrl.policies.text.packing import output_layer
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.statistics import ChoiceLogprobs
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.policies.text.oracle import TINY, batch_of, completions, decided
from tests.policies.text.test_architecture import saved
from tests.policies.text.test_policy import PROMPTS
from tests.policies.text.test_vision import LLAVA
from tests.policies.text.test_vision import PROMPTS as IMAGES

CUT = Sampling(max_tokens=9, temperature=0.8, top_k=20, top_p=0.9)
PLAIN = Sampling(max_tokens=9, temperature=1.3)
STATISTICS = {"some": NucleusEntropy(0.5), "choice_logprobs": ChoiceLogprobs()}
CASES = {
    "tied": (PLAIN, {}),
    "untied": (PLAIN, {"config": {**TINY, "tie_word_embeddings": False}}),
    "cut": (CUT, {}),
    "statistics": (PLAIN, {"statistics": STATISTICS}),
    "values": (PLAIN, {"value_head": True}),
    "adapters": (PLAIN, {"lora": {"r": 4}}),
    "adapted head": (PLAIN, {"lora": {"r": 4, "target_modules": ["q_proj", "lm_head"]}}),
    "trained head": (PLAIN, {"lora": {"r": 4, "modules_to_save": ["lm_head"]}}),
    "bf16 base": (PLAIN, {"lora": {"r": 4}, "dtype": "bfloat16"}),
    "checkpointing": (PLAIN, {"gradient_checkpointing": True}),
}


@pytest.fixture
def chunks(monkeypatch):
    """The numbers of rows of the chunks, pass by pass."""
    made, apply = [], output_layer.apply_in_chunks

    def count(layer, hidden, score, rows):
        made.append((len(hidden), rows))
        return apply(layer, hidden, score, rows)

    monkeypatch.setattr(output_layer, "apply_in_chunks", count)
    return made


def build(kind=TextPolicy, seed=0, **options):
    torch.manual_seed(seed)
    policy = decided(kind(**{"config": dict(TINY), **options})).train()
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return policy


def learn(policy, batch):
    """Scores, and the gradient of every trained parameter."""
    out = policy(batch)
    scores = [out.logprobs, out.entropy, *out.extra.values(), *([] if out.values is None else [out.values])]
    finite = [torch.where(part.isfinite(), part, 0) for part in scores]
    sum((part.double() * torch.linspace(-1, 2, part.numel()).view_as(part)).sum() for part in finite).backward()
    return scores, {name: p.grad for name, p in policy.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_scores_and_gradients_are_those_of_whole_logits(name, chunks):
    sampling, options = CASES[name]
    policy, chunked = build(**options), build(**options, max_logits=700)
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, sampling))
    expected, gradients = learn(policy, batch)
    assert not chunks
    scores, found = learn(chunked, batch)
    vocabulary = len(policy.tokenizer)
    assert chunks and all(rows == 700 // vocabulary < tokens for tokens, rows in chunks)
    assert_close(scores, expected, rtol=1e-5, atol=1e-5)
    # gradients of about 1 to 100 are sums over choices
    assert_close(found, gradients, rtol=1e-4, atol=1e-5 * max(float(part.abs().max()) for part in gradients.values()))


def test_images_and_ids_that_may_not_be_chosen(chunks):
    policies = [build(VisionLanguagePolicy, config=dict(LLAVA), **more) for more in ({}, {"max_logits": 700})]
    batch = batch_of(policies[0], IMAGES, completions(policies[0], IMAGES, CUT))
    (expected, gradients), (scores, found) = (learn(policy, batch) for policy in policies)
    assert chunks
    assert_close(scores, expected, rtol=1e-5, atol=1e-5)
    assert_close(found, gradients, rtol=1e-4, atol=1e-4)


def test_bf16_arithmetic(chunks):
    policies = [build(), build(max_logits=700)]
    batch = batch_of(policies[0], PROMPTS, completions(policies[0], PROMPTS, PLAIN))
    with torch.autocast("cpu", torch.bfloat16):
        expected, scores = (policy(batch) for policy in policies)
    assert chunks
    assert_close(scores.logprobs, expected.logprobs, rtol=0, atol=1e-5)
    for out in (expected, scores):
        out.logprobs.sum().backward()
    whole, mine = (policy.model.get_output_embeddings().weight.grad for policy in policies)
    assert (mine - whole).norm() < 0.02 * whole.norm()


def test_a_checkpoint_is_loaded_and_scored_in_chunks(tmp_path, chunks):
    path = saved(tmp_path, "llama", num_key_value_heads=2)
    policy, chunked = TextPolicy(path=path), TextPolicy(path=path, max_logits=700)
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, PLAIN))
    (expected, gradients), (scores, found) = learn(policy, batch), learn(chunked, batch)
    assert chunks
    assert_close((scores, found), (expected, gradients), rtol=1e-5, atol=1e-5)


CHANGED = {
    "gemma2": {"num_key_value_heads": 2, "head_dim": 8},
    "cohere": {"num_key_value_heads": 2},
    "granite": {"num_key_value_heads": 2, "logits_scaling": 8.0},
}


@pytest.mark.parametrize("kind", CHANGED)
def test_models_that_cap_or_scale_their_logits_compute_them_at_once(kind, tmp_path, chunks, caplog):
    path = saved(tmp_path, kind, **CHANGED[kind])
    policy, other = TextPolicy(path=path), TextPolicy(path=path, max_logits=700)
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, PLAIN))
    with caplog.at_level(logging.WARNING):
        assert_close(other(batch).logprobs, policy(batch).logprobs, rtol=0, atol=0)
        other(batch)
    warnings = [record for record in caplog.records if "policy.max_logits has no effect" in record.message]
    assert not chunks and len(warnings) == 1 and "caps or scales" in warnings[0].message


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_dropout_in_the_output_layer_is_drawn_once(chunks, caplog):
    lora = {"r": 4, "target_modules": ["lm_head"], "lora_dropout": 0.5}
    policy = build(lora=lora, max_logits=700)
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, PLAIN))
    with caplog.at_level(logging.WARNING):
        policy(batch)
    assert not chunks and "lora_dropout" in caplog.text


def test_small_passes_are_neither_cut_nor_compared():
    policy = build()
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, PLAIN))
    policy(batch)
    assert policy.output_layer._exact is None
    with pytest.raises(ValueError, match=r"policy\.max_logits must be at least 1"):
        TextPolicy(config=dict(TINY), max_logits=0)
