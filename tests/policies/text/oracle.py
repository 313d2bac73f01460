"""Independent answers about a policy: the same question put to the plain transformers model, one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy

TINY = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


def decided(policy: TextPolicy, factor: float = 6.0) -> TextPolicy:
    """The policy with larger random weights: fresh ones are so near to uniform that no mistake would be seen."""
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.dim() > 1:
                weight.mul_(factor)
    return policy


def completions(
    policy: TextPolicy, prompts: Sequence[Prompt], sampling: Sampling, seed: int = 0, max_rows: int = 256
) -> list[Completion]:
    """One completion per prompt; the i-th prompt always draws from the same stream."""
    engine = LocalEngine(max_rows)
    engine.sync(policy, 3)
    return engine.sample([Request(p.observation, derive_seed(seed, p.key)) for p in prompts], sampling)


def batch_of(policy: TextPolicy, prompts: Sequence[Prompt], done: Sequence[Completion]) -> Batch:
    """The completions as the rows that a learner gets."""
    return collate([Episode(p, i, 0, [Turn(c)]) for i, (p, c) in enumerate(zip(prompts, done))], policy)


def largest_log_ratio(policy: TextPolicy, prompts: Sequence[Prompt], done: Sequence[Completion]) -> float:
    """max |forward - act| in nats over the choices."""
    batch = batch_of(policy, prompts, done)
    with torch.no_grad():
        scored = policy.eval()(batch).logprobs
    return float((scored - batch["behavior_logprobs"])[batch["action_mask"]].abs().max())


def plain_logits(policy: TextPolicy, completion: Completion) -> Tensor:
    """[T, V] of the transformers model itself on one unpadded row, with its own positions and masks."""
    inputs = {k: v[None] if k in policy.per_token else v for k, v in completion.observation.items()}
    ids = torch.cat([inputs.pop("input_ids")[0], completion.action])[None]
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, len(completion.action)))
    with torch.no_grad():
        logits = policy.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **inputs).logits[0]
    logits = logits[-len(completion.action) - 1 : -1].float()
    if policy.forbidden:
        logits[:, policy.forbidden] = -torch.inf
    return logits


def plain_generate(policy: TextPolicy, observation: dict[str, Any], tokens: int) -> list[int]:
    """Greedy ids of transformers' own `generate` on one row, up to and including the first end-of-sequence token."""
    inputs = {k: v[None] if k in policy.per_token else v for k, v in observation.items()}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    options = {"suppress_tokens": policy.forbidden} if policy.forbidden else {}
    out = policy.model.generate(
        **inputs, max_new_tokens=tokens, do_sample=False, pad_token_id=policy.tokenizer.pad_token_id, **options
    )
    return out[0, inputs["input_ids"].shape[1] :].tolist()


def check_log_probs(policy: TextPolicy, prompts: Sequence[Prompt], sampling: Sampling) -> None:
    """Log-probs of sampling are those of transformers on one row without padding, with its own positions and masks."""
    for completion in completions(policy, prompts, sampling):
        expected = plain_logits(policy, completion).log_softmax(-1).gather(1, completion.action[:, None])[:, 0]
        assert_close(completion.behavior_logprobs, expected, atol=1e-4, rtol=0)


def check_greedy(policy: TextPolicy, prompts: Sequence[Prompt], tokens: int) -> None:
    """Greedy decoding is that of transformers."""
    for completion in completions(policy, prompts, Sampling(decode="argmax", max_tokens=tokens)):
        assert completion.action.tolist() == plain_generate(policy, completion.observation, tokens)


def check_grouped(policy: TextPolicy, prompts: Sequence[Prompt], owners: Sequence[int], sampling: Sampling) -> None:
    """Completions whose prompt is read once with its images and videos are those that read it alone.

    Args:
        policy: that samples.
        prompts: of the completions.
        owners: the prompt of each completion, whose seed is its place.
        sampling: of all.
    """
    engine = LocalEngine()
    engine.sync(policy, 0)
    raws = [prompt.observation for prompt in prompts]
    requests = [Request(raws[owner], seed, prompt_id=owner) for seed, owner in enumerate(owners)]
    for request, completion in zip(requests, engine.sample(requests, sampling)):
        (alone,) = engine.sample([request], sampling)
        assert alone.action.tolist() == completion.action.tolist()
        assert_close(alone.behavior_logprobs, completion.behavior_logprobs, atol=1e-4, rtol=0)
