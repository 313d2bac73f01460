"""Models with recurrent, hybrid and compressed layers: what is sampled and scored is what transformers computes."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import Tensor
from transformers import AutoModelForCausalLM

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Completion, Prompt, Sampling
from mmrl.engines.local import cut_rows
from mmrl.policies.text.cache import build_cache
from mmrl.policies.text.packing.plan import Lengths, PackingCost, plan_packing
from mmrl.policies.text.policy import TextPolicy
from scripts.model_sweep.checkpoints import build_checkpoint
from tests.policies.text.oracle import batch_of, completions

KINDS = ("qwen3_5_text", "mamba", "minimax", "lfm2", "deepseek_v4")
"""Hybrid; nothing but a state; a cache class of its own; convolutions; compressed keys, which count padding."""
QUESTIONS = ("a?", "a longer question, with more words", "and this one", "or this")
PROMPTS = [Prompt(f"words/train/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(QUESTIONS * 3)]
COST = PackingCost(1.0, 0.1, 0.1)
REWARD = "rollout/reward"
SAMPLING = Sampling(max_tokens=8, stop=("a", "e", "i", "o", "u", "1", "2", "3", "4", "5"))


@dataclass(frozen=True)
class Both:
    """A checkpoint as a policy and as transformers loads it."""

    folder: Path
    policy: TextPolicy
    network: Any

    def logprobs(self, completion: Completion, network: Any = None) -> Tensor:
        """Log-probs [t] of the choices by the untouched model, which reads the row alone."""
        ids = torch.cat([completion.observation["input_ids"], completion.action])[None]
        logits = (network or self.network)(input_ids=ids, use_cache=False).logits[0, -len(completion.action) - 1 : -1]
        forbidden = torch.tensor(self.policy.forbidden, dtype=torch.long)
        logprobs = logits.index_fill(1, forbidden, -torch.inf).log_softmax(-1)
        return logprobs.gather(1, completion.action[:, None])[:, 0]


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Build the tiny checkpoint of a kind, once."""

    @functools.cache
    def load_both(kind: str) -> Both:
        folder = tmp_path_factory.mktemp(kind)
        build_checkpoint(kind, "text", folder)
        policy = TextPolicy(path=str(folder)).eval()
        return Both(folder, policy, AutoModelForCausalLM.from_pretrained(folder).eval())

    return load_both


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rows_that_leave_at_different_times_have_the_log_probs_of_the_untouched_model(kind, load):
    both = load(kind)
    done = completions(both.policy, PROMPTS, SAMPLING)
    lengths = [len(completion.action) for completion in done]
    assert len(set(lengths)) > 2 and 8 in lengths  # more than a quarter of the rows has left before the end
    for completion in done:
        torch.testing.assert_close(completion.behavior_logprobs, both.logprobs(completion), atol=1e-4, rtol=0)
    batch = batch_of(both.policy, PROMPTS, done)
    scored = both.policy(batch).logprobs
    assert float((scored - batch["behavior_logprobs"])[batch["action_mask"]].abs().max()) < 1e-4


@pytest.mark.parametrize("kind", ["qwen3_5_text", "mamba"])
def test_greedy_completions_are_those_of_generate(kind, load):
    both = load(kind)
    options = {"max_new_tokens": 6, "do_sample": False, "suppress_tokens": both.policy.forbidden}
    for completion in completions(both.policy, PROMPTS[: len(QUESTIONS)], Sampling(max_tokens=6, decode="argmax")):
        ids = completion.observation["input_ids"][None]
        expected = both.network.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert expected[0, ids.shape[1] :].tolist() == completion.action.tolist()


@pytest.mark.parametrize("kind", ["qwen3_5_text", "deepseek_v4"])
def test_gradients_are_those_of_the_untouched_model(kind, load):
    """Of the summed log-probs of rows of several lengths."""
    both = load(kind)
    done = completions(both.policy, PROMPTS[:3], SAMPLING)
    batch = batch_of(both.policy, PROMPTS[:3], done)
    both.policy(batch).logprobs[batch["action_mask"]].sum().backward()
    sum(both.logprobs(completion).sum() for completion in done).backward()
    expected, gradients = (
        {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        for model in (both.network, both.policy.model)
    )
    assert gradients.keys() == expected.keys() and len(expected) > 10
    for name, gradient in expected.items():
        tolerance = 1e-3 * float(gradient.abs().max()) + 1e-5
        torch.testing.assert_close(gradients[name], gradient, atol=tolerance, rtol=0)


@torch.no_grad()
def test_adapters_of_every_linear_layer_are_merged_into_an_export(load, tmp_path):
    both = load("qwen3_5_text")
    adapted = TextPolicy(path=str(both.folder), lora={"r": 4}).eval()
    trained = {name: weight for name, weight in adapted.model.named_parameters() if weight.requires_grad}
    assert any("linear_attn" in name for name in trained)
    torch.manual_seed(0)
    for weight in trained.values():
        weight.add_(0.05 * torch.randn_like(weight))
    done = completions(adapted, PROMPTS[:3], SAMPLING)
    adapted.save_pretrained(tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for completion in done:
        torch.testing.assert_close(completion.behavior_logprobs, both.logprobs(completion, merged), atol=1e-4, rtol=0)
        assert float((completion.behavior_logprobs - both.logprobs(completion)).abs().max()) > 1e-3


def test_rows_that_may_not_be_padded_stand_beside_equal_lengths(load):
    policy = load("deepseek_v4").policy
    assert not policy.takes_padding and load("qwen3_5_text").policy.takes_padding
    read = [policy.encode(prompt.observation) for prompt in PROMPTS]
    batches = list(cut_rows(range(len(read)), 2, read, policy))
    assert sorted(row for batch in batches for row in batch) == list(range(len(read)))
    assert all(len(batch) <= 2 and len({len(read[row]["input_ids"]) for row in batch}) == 1 for batch in batches)


def test_a_plan_without_padding_has_a_batch_for_each_length():
    # rows of 7 + 2 tokens, one of 6 + 3 and one of 7 + 5: the first four are as long as each other
    lengths = Lengths(np.array([0, 0, 0, 1, 2]), np.array([7, 6, 7]), np.array([2, 2, 2, 3, 5]))
    plan = plan_packing(lengths, COST, shared=False, one_pass=False, padded=False)
    assert plan == [[(0,), (1,), (2,), (3,)], [(4,)]]
    with pytest.raises(ValueError, match=r"beside rows of the same length alone.*strategy=ddp"):
        plan_packing(lengths, COST, shared=False, one_pass=True, padded=False)


def test_the_planned_bytes_of_a_cache_are_those_after_the_last_token(load):
    """2 prompts, 3 completions, and 5 tokens after them, of which the last is not read."""
    network, owner = load("qwen3_5_text").network, torch.tensor([0, 1, 1])
    ids, caches = torch.randint(3, 50, (2, 7)), [build_cache(network, 5) for _ in range(2)]
    for cache in caches:
        network(input_ids=ids, cache=cache, use_cache=True)
        cache.expand(owner)
    caches[0].grow(4)
    for _ in range(4):
        network(input_ids=ids[owner, -1:], cache=caches[1], use_cache=True)
    planned, measured = (sum(tensor.nbytes for tensor in cache.list_tensors()) for cache in caches)
    assert planned == measured > 0
    assert any(tensor.dim() == 4 and tensor.shape[-2] == 11 for tensor in caches[0].list_tensors())


HYBRID = (
    "{model_type: qwen3_5_text, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2, "
    "num_key_value_heads: 2, head_dim: 16, layer_types: [linear_attention, full_attention], linear_num_key_heads: 2, "
    "linear_num_value_heads: 2, linear_key_head_dim: 8, linear_value_head_dim: 8, tie_word_embeddings: true}"
)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_grpo_teaches_random_weights_of_qwen3_5_to_write_digits(seed, tmp_path):
    """Half of five characters are digits at the start; settings were chosen with seeds 101 to 103."""
    words = ("recipe=grpo", f"policy.config={HYBRID}", "trainer.callbacks.warm_start.stages=null", f"seed={seed}")
    words += ("data.task._target_=tests.tiny_recipes.Counting", "sampling.max_tokens=5", "data.num_prompts=8")
    words += ("data.num_minibatches=2", "optimizer.lr=1e-2", "trainer.max_epochs=10", "trainer.accelerator=cpu")
    words += ("trainer.check_val_every_n_epoch=10", "trainer.logger=false", "trainer.callbacks.progress=null")
    cli, rewards = CLI(to_lightning(compose([*words, f"run_dir='{tmp_path}'"]))), []
    note = LambdaCallback(on_train_epoch_end=lambda trainer, _: rewards.append(trainer.callback_metrics[REWARD]))
    cli.trainer.callbacks.append(note)
    cli.fit()
    first, last = torch.stack(rewards[:2]).mean(), torch.stack(rewards[-2:]).mean()
    assert first < 0.55 and last > 0.8
