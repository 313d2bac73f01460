"""Sequences that processes divide: scores of plain transformers, and gradients of one process, in every packing."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Sampling
from mmrl.distributed.sequence_group import ALONE, build_sequence_group
from mmrl.policies.text.packing import plan as packing
from mmrl.policies.text.packing.sequence_division import count_repeats
from mmrl.policies.text.policy import TextPolicy
from tests.distributed.test_sequence_group import join_processes, run_group
from tests.policies.text.oracle import TINY, batch_of, completions, decided, plain_logits
from tests.policies.text.test_policy import PROMPTS

WINDOW = {"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": True, "sliding_window": 4}
CASES = {
    "plain": ({}, {}),
    "one pair of heads": ({"num_key_value_heads": 1}, {}),
    "windows": ({**WINDOW, "max_window_layers": 0}, {}),
    "adapters": ({}, {"lora": {"r": 4}}),
    "checkpointing": ({}, {"gradient_checkpointing": True}),
    "packed": ({}, {"pack_prompts": True}),
    "chunked logits": ({}, {"max_logits": 600}),
    "value head": ({}, {"value_head": True, "hidden_layers": [0.5]}),
}

FOUR = ("one pair of heads", "adapters", "packed")
"""Cases of four processes."""


def build(architecture, options):
    torch.manual_seed(0)
    policy = decided(TextPolicy(config={**TINY, **architecture}, **options))
    if policy.value_head is not None:
        torch.nn.init.normal_(policy.value_head.weight)
    return policy.train()


def learn(policy, batch, batches):
    """Scores, and the gradient of a loss that reads all of them."""
    policy.zero_grad()
    out = policy.score_packed(policy.extract_tokens(batch), batches, batch)
    loss = (out.logprobs + 0.1 * out.entropy)[batch["action_mask"]].sum()
    if out.values is not None:
        loss = loss + (0.1 * out.values**2 + out.extra["hidden_states"].square().mean((2, 3))).sum()
    loss.backward()
    return out, {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def compare(policy, batch, batches, group, expected):
    """Compare scores and gradients of divided sequences with those of whole ones, and log-probs with plain ones."""
    whole, gradients = learn(policy, batch, batches)
    sizes = []
    handle = policy.model.get_input_embeddings().register_forward_hook(lambda *call: sizes.append(call[1][0].shape[1]))
    with group.divide():
        divided, shares = learn(policy, batch, batches)
    handle.remove()
    lengths = policy.extract_tokens(batch).lengths
    longest = [max(packing.sequence_size(sequence, lengths)[0] for sequence in packed) for packed in batches]
    assert sizes == [-(-length // group.size) for length in longest]  # tokens that this process computes
    mask = batch["action_mask"]
    assert_close(divided.logprobs[mask], whole.logprobs[mask], atol=2e-5, rtol=1e-5)
    assert_close(divided.logprobs[mask], expected, atol=5e-5, rtol=1e-5)
    assert_close(divided.entropy[mask], whole.entropy[mask], atol=2e-5, rtol=1e-5)
    assert (divided.values is None) == (whole.values is None)
    if whole.values is not None:
        assert_close(divided.values, whole.values, atol=1e-5, rtol=1e-5)
        assert_close(divided.extra["hidden_states"], whole.extra["hidden_states"], atol=1e-5, rtol=1e-5)
    assert shares.keys() == gradients.keys()
    for name, share in shares.items():
        torch.distributed.all_reduce(share, group=group.process_group)  # the mean, as strategies compute it
        scale = float(gradients[name].abs().max())
        assert_close(share / group.size, gradients[name], atol=1e-5 * scale + 1e-9, rtol=1e-4)


def compare_cases(rank, ranks, port):
    join_processes(rank, ranks, port)
    group = build_sequence_group(ranks, torch.device("cpu"))
    cases = CASES if ranks == 2 else {name: CASES[name] for name in FOUR}
    for architecture, options in cases.values():
        policy = build(architecture, options)
        prompts = [prompt for prompt in PROMPTS for _ in range(2)]
        done = completions(policy.eval(), prompts, Sampling(max_tokens=9))
        batch = batch_of(policy.train(), prompts, done)
        expected = torch.cat(
            [plain_logits(policy, each).log_softmax(-1).gather(1, each.action[:, None])[:, 0] for each in done]
        )
        rows = range(batch.rows)
        packings = [[[(row,) for row in rows]], [[(row, row + 1)] for row in rows[::2]]]
        if policy.prefix_sharing.across:
            packings.append([[tuple(rows)]])
        for batches in packings:  # padded rows, completions with their prompt, and several prompts
            compare(policy, batch, batches, group, expected)
        policy.measure_division(group)
    torch.distributed.destroy_process_group()


def refuse(rank, ranks, port):
    join_processes(rank, ranks, port)
    group = build_sequence_group(ranks, torch.device("cpu"))
    policy = build({}, {})
    # a layer that adds the state of the token before: another one where a process has every second token
    layer = policy.model.model.layers[0]
    handle = layer.register_forward_pre_hook(lambda _, args: (args[0] + 0.5 * args[0].roll(1, 1), *args[1:]))
    with pytest.raises(ValueError, match=r"sequence_parallel=2: sequences of qwen2 .* look at tokens beside attention"):
        policy.measure_division(group)
    handle.remove()
    policy.measure_division(group)
    with pytest.raises(ValueError, match=r"sequence_parallel=2 computes attention itself, and qwen2 keeps its own"):
        build({}, {"attention": "eager"}).measure_division(group)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("ranks", [2, 4])
def test_divided_sequences_have_scores_and_gradients_of_whole_ones(ranks):
    run_group(compare_cases, ranks)


def test_a_model_that_cannot_be_divided_is_refused_by_measurement():
    run_group(refuse, 2)


@pytest.mark.parametrize(
    ("heads", "pairs", "size", "repeats"),
    [(8, 8, 4, 1), (8, 2, 2, 1), (8, 2, 4, 2), (4, 1, 4, 4), (12, 3, 2, 2), (6, 3, 3, 1)],
)
def test_key_value_heads_are_repeated_no_more_than_needed(heads, pairs, size, repeats):
    assert count_repeats(heads, pairs, size) == repeats


def test_added_tokens_are_at_the_end_and_need_no_mask():
    """Sequences of one length stay without a mask over pairs, and their tokens keep their places."""
    policy = build({}, {})
    batch = batch_of(policy, PROMPTS[:1], completions(policy, PROMPTS[:1], Sampling(max_tokens=9)))
    tokens = policy.extract_tokens(batch)
    plain, wider = (tokens.pack([[0]], policy.prefix_sharing.mask, multiple) for multiple in (1, 4))
    length = plain.tensors["input_ids"].shape[1]
    assert wider.tensors["input_ids"].shape[1] % 4 == wider.width % 4 == 0
    assert_close(wider.tensors["input_ids"][:, :length], plain.tensors["input_ids"])
    assert bool(wider.tensors["attention_mask"].all())
    with ALONE.divide():
        one, other = (policy.score_inputs(inputs, batch) for inputs in (plain, wider))
    for part, wide in zip(one, other):
        assert_close(wide, part, atol=1e-6, rtol=1e-5)
