"""Packing and prefix sharing: costs, and that the network computes the same in every packing."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import Qwen2Config

from mmrl.core.batch import Batch, Ragged
from mmrl.core.rng import derive_seed
from mmrl.core.types import Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.packing import plan
from mmrl.policies.text.packing.packed_inputs import BatchTokens, annotate_mask, packed_mask
from mmrl.policies.text.packing.plan import (
    Lengths,
    PackingCost,
    fill_sequences,
    plan_packing,
    prefix_groups,
    sequence_size,
    shares_prefix,
    split_by_prompt,
)
from mmrl.policies.text.packing.prefix_sharing import _select_longest
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.checkpoints import qwen2_5_vl, qwen3_vl
from tests.policies.text.oracle import TINY, decided
from tests.policies.text.test_vision import LLAVA, prompt

SIZES = Qwen2Config(hidden_size=128, num_hidden_layers=4, vocab_size=100)
COST = PackingCost.of_model(SIZES, torch.device("cpu"))


def lengths(*groups: tuple[int, list[int]]) -> Lengths:
    """Of prompts with this many tokens and completions of these lengths."""
    number = [i for i, (_, completions) in enumerate(groups) for _ in completions]
    return Lengths(
        np.array(number), np.array([before for before, _ in groups]), np.array([n for _, many in groups for n in many])
    )


def total(batches, of: Lengths, cost_model: PackingCost) -> float:
    sizes = [[sequence_size(sequence, of) for sequence in packed] for packed in batches]
    return sum(cost_model(len(s), max(n for n, _ in s), max(w for _, w in s)) for s in sizes)


def rows(batches) -> list[int]:
    return [row for packed in batches for sequence in packed for row in sequence]


# ---------------------------------------------------------------- which layout


def test_long_prompts_are_shared_and_short_ones_are_not():
    assert plan_packing(lengths((512, [16] * 8)), COST, True, False) == [[tuple(range(8))]]
    assert plan_packing(lengths((6, [64] * 8)), COST, True, False) == [[(i,) for i in range(8)]]
    assert plan_packing(lengths((512, [16] * 8)), COST, False, False) == [[(i,) for i in range(8)]]


def test_every_row_is_read_once_and_lines_hold_one_prompt():
    rng = np.random.default_rng(0)
    for shared, one_pass in itertools.product([False, True], repeat=2):
        of = lengths(*((int(rng.integers(1, 300)), rng.integers(1, 90, int(rng.integers(1, 9)))) for _ in range(12)))
        batches = plan_packing(of, COST, shared, one_pass)
        assert sorted(rows(batches)) == list(range(len(of.choices)))
        assert all(len(set(of.prompt[list(sequence)])) == 1 for packed in batches for sequence in packed)
        assert any(map(shares_prefix, batches)) == shared and (len(batches) == 1 or not one_pass)


def test_sheets_are_cut_where_it_is_cheapest():
    """Against all ways of cutting sequences in order of length."""
    cost_model = PackingCost(call=60, pair=1e-3, head=0.1)
    result = set()
    for seed in range(20):
        choices = np.random.default_rng(seed).geometric(0.05, 8).clip(max=90).tolist()
        of = lengths(*((4, [n]) for n in choices))
        order = sorted(range(8), key=lambda i: choices[i])
        ways = []
        for marks in itertools.product([False, True], repeat=7):
            edges = [0, *(i + 1 for i, mark in enumerate(marks) if mark), 8]
            ways.append(total([[(i,) for i in order[a:b]] for a, b in itertools.pairwise(edges)], of, cost_model))
        batches = plan_packing(of, cost_model, False, False)
        assert total(batches, of, cost_model) == pytest.approx(min(ways))
        result.add(len(batches))
    assert len(result) > 1


def test_prefix_groups_are_the_cheapest_slices_of_completions_with_a_common_prefix():
    """Against all ways of cutting the completions of a prompt, in the order of their texts."""
    cost_model, result = PackingCost(call=0, pair=5e-3, head=0.2), set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        choices, text = rng.integers(1, 20, 7), rng.integers(0, 2, (7, 20))
        text[:, : int(rng.integers(0, 10))] = 1
        of = Lengths(np.zeros(7, dtype=int), np.array([int(rng.integers(1, 9))]), choices, text)
        order = sorted(range(7), key=lambda i: text[i, : choices[i]].tolist())
        ways = []
        for marks in itertools.product([False, True], repeat=6):
            edges = [0, *(i + 1 for i, mark in enumerate(marks) if mark), 7]
            sequences = [tuple(order[a:b]) for a, b in itertools.pairwise(edges)]
            ways.append(sum(cost_model(1, *sequence_size(sequence, of)) for sequence in sequences))
        sequences = prefix_groups(of, cost_model)
        assert sorted(row for sequence in sequences for row in sequence) == list(range(7))
        assert sum(cost_model(1, *sequence_size(sequence, of)) for sequence in sequences) == pytest.approx(min(ways))
        result.add(len(sequences))
    assert len(result) > 2


def test_a_conversation_is_read_up_to_where_completions_part():
    """Eight completions hear one answer of 40 tokens; then four say one thing and four another, and hear 40 more."""
    message = np.concatenate([np.full((8, 44), 7), np.repeat([[1], [2]], 4, axis=0).repeat(44, 1)], 1)
    message[:, -1] = np.arange(8)
    of = Lengths(np.zeros(8, dtype=int), np.array([10]), np.full(8, 88), message)
    assert prefix_groups(of, COST) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    # 9 of the prompt, then 44 once, and twice 43 and four ends; plain sequences hold 8 * 97
    assert sequence_size(tuple(range(4)), of) == (9 + 87 + 4, 87 + 4)


def test_large_sheets_are_cut_into_like_parts():
    of = lengths(*((6, [64] * 8),) * 5)  # 40 sequences of 69 tokens
    batches = plan_packing(of, COST, False, False, 1000)
    assert sorted(rows(batches)) == list(range(40)) and [len(packed) for packed in batches] == [14, 13, 13]
    assert [len(packed) for packed in plan_packing(of, COST, False, False, 10)] == [1] * 40
    assert len(plan_packing(of, COST, False, True, 10)) == 1


def test_no_mask_is_larger_than_allowed(monkeypatch):
    monkeypatch.setattr(plan, "MAX_MASK", 700**2)
    of = lengths(*((512, [16] * 8),) * 3)
    batches = plan_packing(of, COST, True, False)
    assert sorted(rows(batches)) == list(range(24)) and any(map(shares_prefix, batches))
    for packed in filter(shares_prefix, batches):
        assert len(packed) * max(sequence_size(sequence, of)[0] for sequence in packed) ** 2 <= 700**2


def test_who_sees_whom():
    """Two completions of two and one tokens at a prompt of two, after one filling."""
    completion, depth = torch.tensor([[-1, 0, 0, 1, 1, 2]]), torch.tensor([[0, 0, 1, 2, 3, 2]])
    owner = torch.tensor([[-1, 0, 0, 0, 0, 0]])
    seen = [[0], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 5]]
    assert [row.nonzero().flatten().tolist() for row in packed_mask(completion, depth, owner)[0, 0]] == seen
    near = [[0], [1], [1, 2], [2, 3], [3, 4], [2, 5]]
    assert [row.nonzero().flatten().tolist() for row in packed_mask(completion, depth, owner, 2)[0, 0]] == near


def test_who_sees_whom_across_prompts():
    """Prompts of two and one tokens, then two completions of the first and one of the second."""
    owner, completion = torch.tensor([[0, 0, 1, 0, 0, 0, 1]]), torch.tensor([[0, 0, 0, 1, 2, 2, 1]])
    depth = torch.tensor([[0, 1, 0, 2, 2, 3, 1]])
    seen = [[0], [0, 1], [2], [0, 1, 3], [0, 1, 4], [0, 1, 4, 5], [2, 6]]
    mask = packed_mask(completion, depth, owner)
    assert [row.nonzero().flatten().tolist() for row in mask[0, 0]] == seen
    marked = annotate_mask(mask, completion, owner)
    assert marked.head == 3 and not marked.causal


def test_short_prompts_fill_up_long_sequences():
    """One sequence of 100 tokens beside twenty of 10: in one pass, 3 sequences of 100 tokens in place of 21."""
    of = lengths((60, [41]), *((6, [5]),) * 20)
    filled = fill_sequences(of, COST)
    assert sorted(row for sequence in filled for row in sequence) == list(range(21))
    assert [sequence_size(sequence, of)[0] for sequence in filled] == [100, 100, 100] and len(filled[0]) == 1
    assert len(split_by_prompt(filled[1], of)) == 10
    (packed,) = plan_packing(of, COST, True, True, across=True)
    assert len(packed) == 3
    (apart,) = plan_packing(of, COST, True, True)
    assert len(apart) == 21
    assert plan_packing(of, COST, False, True, across=True) == plan_packing(of, COST, False, True)


# ---------------------------------------------------------------- the same loss and gradient

WINDOW = {**TINY, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
KINDS = ("qwen2", "qwen2_window", "mistral", "checkpointing", "lora", "llava", "qwen2_5_vl", "qwen3_vl", "vlm_lora")
QUESTIONS = ("what is five hundred and twelve plus one?" * 4, "23+4=" * 24, "a b c d e f g h i j" * 8)


def built(kind: str, folder) -> TextPolicy:
    torch.manual_seed(0)
    vlm = {"qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl, "vlm_lora": qwen3_vl}
    if kind in vlm:
        policy = VisionLanguagePolicy(
            path=str(vlm[kind](folder)), value_head=True, lora={"r": 4} if kind == "vlm_lora" else None
        )
    elif kind == "llava":
        policy = VisionLanguagePolicy(config=LLAVA, value_head=True)
    else:
        config = {"qwen2_window": WINDOW, "mistral": {**TINY, "model_type": "mistral", "sliding_window": 9}}
        policy = TextPolicy(
            config=config.get(kind, TINY),
            value_head=True,
            lora={"r": 4} if kind == "lora" else None,
            gradient_checkpointing=kind == "checkpointing",
        )
    decided(policy, 3.0)
    for name, weight in policy.named_parameters():
        if "lora_B" in name or name.startswith("value_head"):
            torch.nn.init.normal_(weight, std=0.3)
    return policy


def played(policy: TextPolicy, sampling: Sampling, sizes=(4, 1, 3)) -> Batch:
    """Groups of these sizes with answers of different lengths, in no order."""
    if isinstance(policy, VisionLanguagePolicy):
        prompts = [prompt(0, QUESTIONS[0], (32, 32)), prompt(1, "which?", (28, 56), (56, 56)), prompt(2, QUESTIONS[2])]
    else:
        prompts = [Prompt(f"text/train/{i}", ({"role": "user", "content": q},)) for i, q in enumerate(QUESTIONS)]
    engine = LocalEngine()
    engine.sync(policy, 0)
    requests, episodes = [], []
    for group, (one, completions) in enumerate(zip(prompts, sizes)):
        raw = one.observation
        for completion in range(completions):
            requests.append(Request(raw, derive_seed(group, completion), prompt_id=group))
            episodes.append(Episode(one, group, completion))
    for episode, completion in zip(episodes, engine.sample(requests, sampling)):
        episode.turns.append(Turn(completion))
    batch = collate(episodes, policy)
    assert batch["prompt_id"].tolist() == batch["group"].tolist()
    mask = batch["action_mask"].clone()
    mask[0, 1] = False  # a forced choice between others is read all the same
    batch = batch.with_columns(action_mask=mask)
    return batch.select(torch.randperm(batch.rows, generator=torch.Generator().manual_seed(0)))


def score_and_backward(policy: TextPolicy, batch: Batch, batches):
    """Loss and gradient of a sum with fixed weights over log-probs, entropies and values."""
    policy.zero_grad()
    out = (
        policy.forward(batch) if batches is None else policy.score_packed(policy.extract_tokens(batch), batches, batch)
    )
    weights = (
        torch.randn((3, *batch["action_mask"].shape), generator=torch.Generator().manual_seed(1)) * batch["action_mask"]
    )
    loss = (weights * torch.stack([out.logprobs, out.entropy, out.values])).sum() / batch["action_mask"].sum()
    loss.backward()
    return out, loss.detach(), {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}


def packings(of: Lengths):
    """Every row alone in a pass of its own, and how else they can be read."""
    groups = [np.flatnonzero(of.prompt == number).tolist() for number in dict.fromkeys(of.prompt.tolist())]
    alone = [[(row,)] for row in range(len(of.prompt))]
    together = [tuple(group) for group in groups]
    halves = [tuple(group[i : i + 2]) for group in groups for i in range(0, len(group), 2)]
    everything = tuple(row for group in groups for row in group)
    return alone, {
        "plain": [[sequence for packed in alone for sequence in packed]],
        "shared": [together],
        "one after another": [[sequence] for sequence in together],
        "halves": [halves[:2], halves[2:]],
        "across prompts": [[everything]],
        "across some prompts": [[together[0], together[1] + together[2]]],
        "without sharing": [[everything[::2] + everything[1::2]]],
    }


def same_in_all_packings(policy: TextPolicy, batch: Batch):
    """Loss, log-probs and gradient of the chosen layout and of others are those of every row alone."""
    plain, others = packings(policy.extract_tokens(batch).lengths)
    first, loss, gradient = score_and_backward(policy, batch, plain)
    norm = torch.cat([g.flatten() for g in gradient.values()]).norm()
    assert norm > 1e-3
    for name, batches in {**others, "chosen": None}.items():
        out, other, slopes = score_and_backward(policy, batch, batches)
        assert_close(out.logprobs, first.logprobs, atol=1e-5, rtol=1e-5)
        assert_close(other, loss, atol=1e-5, rtol=1e-5)
        assert slopes.keys() == gradient.keys()
        apart = torch.cat([(slopes[n] - gradient[n]).flatten() for n in gradient]).norm()
        assert apart < 1e-5 * norm, f"{name}: {apart / norm:.2g} of the gradient"
    assert any(map(shares_prefix, policy.choose_packing(policy.extract_tokens(batch), batch))) and all(
        policy.prefix_sharing.exact.values()
    )
    return first


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_do_not_depend_on_the_packing(kind, tmp_path):
    policy = built(kind, tmp_path).train()
    batch = played(policy, Sampling(temperature=1.3, top_k=30, max_tokens=14, stop=tuple("abcdefgh0123")))
    assert len(set(batch["action_mask"].sum(1).tolist())) > 2
    first = same_in_all_packings(policy, batch)
    assert_close(
        first.logprobs[batch["action_mask"]], batch["behavior_logprobs"][batch["action_mask"]], atol=1e-4, rtol=0
    )  # act agrees


def alike(batch: Batch) -> Batch:
    """Of the first group one completion leaves the first one's way after 5 choices, one ends there, one is the same."""
    action, mask = batch["action"].clone(), batch["action_mask"].clone()
    zero, one, two, three = (batch["group"] == batch["group"].mode().values).nonzero().flatten().tolist()
    mask[zero], mask[one] = True, True
    action[one, :5], action[one, 5] = action[zero, :5], (action[zero, 5] + 1) % 90
    action[two], mask[two] = action[zero], mask[zero]
    action[three], mask[three] = action[zero], torch.arange(mask.shape[1]) < 5
    return batch.with_columns(action=action, action_mask=mask)


@pytest.mark.parametrize("kind", KINDS)
def test_completions_that_begin_alike_are_read_alike(kind, tmp_path):
    policy = built(kind, tmp_path).train()
    batch = alike(played(policy, Sampling(temperature=1.3, max_tokens=14)))
    of = policy.extract_tokens(batch).lengths
    group = tuple((batch["group"] == batch["group"].mode().values).nonzero().flatten().tolist())
    # 14 choices of the first, 9 that only the second has; none of the others
    assert of.text is not None and [of.common(group), of.common(group[:3])] == [5, 5]
    assert of.common((group[0], group[2])) == 14 and sequence_size((group[0], group[1]), of)[1] == 14 + 9
    same_in_all_packings(policy, batch)
    # which ids were kept, or the temperature, may differ where the choices do not
    ids = Ragged(batch["action"].flatten(), torch.full((batch.rows,), batch["action"].shape[1]))
    kept = {"packed_support_ids": ids, "support_sizes": torch.ones_like(batch["action"])}
    assert policy.extract_tokens(batch.with_columns(**kept)).lengths.text is None
    hotter = batch["temperature"] * (1 + (torch.arange(batch.rows) == 0))
    assert policy.extract_tokens(batch.with_columns(temperature=hotter)).lengths.text is None


@pytest.mark.parametrize("one_pass", [True, False], ids=["one pass", "passes"])
def test_prompts_share_a_sequence_where_it_is_cheaper(one_pass):
    """One long question and eleven short ones: fewer tokens, and the log-probs of every row alone."""
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=TINY, pack_prompts=True, value_head=True), 3.0)
    texts = [QUESTIONS[0], *(f"{number}+4=" for number in range(11))]
    prompts = [Prompt(f"text/train/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(texts)]
    engine = LocalEngine()
    engine.sync(policy, 0)
    done = engine.sample([Request(one.observation, i) for i, one in enumerate(prompts)], Sampling(max_tokens=9))
    batch = collate([Episode(one, i, 0, [Turn(each)]) for i, (one, each) in enumerate(zip(prompts, done))], policy)
    policy.one_pass = one_pass
    tokens = policy.extract_tokens(batch)
    chosen = policy.choose_packing(tokens, batch)
    assert any(len(split_by_prompt(sequence, tokens.lengths)) > 1 for packed in chosen for sequence in packed)
    policy.prefix_sharing.across = False
    assert total(chosen, tokens.lengths, COST) < total(policy.choose_packing(tokens, batch), tokens.lengths, COST)
    first = score_and_backward(policy, batch, packings(tokens.lengths)[0])
    packed = score_and_backward(policy, batch, chosen)
    assert_close(packed[0].logprobs, first[0].logprobs, atol=1e-5, rtol=1e-5)
    assert_close(packed[2], first[2], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [{"attention": "eager"}, {"config": {"model_type": "bloom", "hidden_size": 32}}])
def test_packing_prompts_is_refused_where_no_mask_is_taken(options):
    with pytest.raises(
        ValueError, match=r"policy\.pack_prompts=true needs an attention mask.*use policy\.attention=sdpa"
    ):
        TextPolicy(**{"config": dict(TINY), **options}, pack_prompts=True)


def test_another_completion_changes_nothing():
    """Other tokens in one completion leave the others of its sequence as they are, in value and gradient."""
    policy = built("qwen2", None)
    batch = played(policy, Sampling(max_tokens=6), sizes=(3, 2, 1))
    batches = packings(policy.extract_tokens(batch).lengths)[1]["shared"]
    before = policy.score_packed(policy.extract_tokens(batch), batches, batch).logprobs
    changed = batch.with_columns(action=batch["action"].clone())
    changed["action"][2] = 20
    after = policy.score_packed(policy.extract_tokens(changed), batches, changed).logprobs
    others = [row for row in range(batch.rows) if row != 2]
    assert torch.equal(before[others], after[others]) and (before[2] - after[2]).abs().max() > 0.1


# ---------------------------------------------------------------- who may share


def test_a_window_that_counted_places_would_be_seen(tmp_path):
    """The measurement has teeth: without the window in the mask, the same model is refused."""
    policy = built("mistral", tmp_path)
    batch = played(policy, Sampling(max_tokens=14))
    policy.prefix_sharing.window = None
    policy.prefix_sharing.kinds = set()
    assert not any(map(shares_prefix, policy.choose_packing(policy.extract_tokens(batch), batch)))
    assert list(policy.prefix_sharing.exact.values()) == [False]


def test_a_model_that_adds_a_bias_by_distance_keeps_its_own_lines(caplog):
    torch.manual_seed(0)
    config = {"model_type": "falcon", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    policy = decided(TextPolicy(config={**config, "alibi": True, "new_decoder_architecture": False}, value_head=True))
    batch = played(policy, Sampling(max_tokens=6))
    first = score_and_backward(policy, batch, packings(policy.extract_tokens(batch).lengths)[1]["plain"])
    assert_close(score_and_backward(policy, batch, None)[1], first[1])
    assert not policy.prefix_sharing.masks or (
        caplog.text.count("cannot share") == 1 and not any(policy.prefix_sharing.exact.values())
    )


def test_attention_that_takes_no_mask_of_booleans_keeps_its_own_lines():
    policy = TextPolicy(config=TINY, attention="eager")
    batch = played(policy, Sampling(max_tokens=6))
    assert (
        not any(map(shares_prefix, policy.choose_packing(policy.extract_tokens(batch), batch)))
        and not policy.prefix_sharing.exact
    )


def test_half_precision_shares_too():
    policy = built("qwen2", None)
    batch = played(policy, Sampling(max_tokens=6))
    with torch.autocast("cpu", torch.bfloat16):
        batches = policy.choose_packing(policy.extract_tokens(batch), batch)
        assert any(map(shares_prefix, batches))
        mixed = policy(batch)
    assert mixed.logprobs.dtype == torch.float32
    whole = policy(batch)
    assert (mixed.logprobs - whole.logprobs).abs().max() < 0.3 and not torch.equal(mixed.logprobs, whole.logprobs)
    policy = policy.to(torch.bfloat16)
    policy.prefix_sharing.exact.clear()
    assert any(map(shares_prefix, policy.choose_packing(policy.extract_tokens(batch), batch)))


def test_a_mask_that_is_wrong_by_little_is_noticed_in_half_precision(caplog):
    """Completions that do not see the first token of their prompt: 0.05 nats, less than bf16 rounds logits near 10."""
    policy = built("qwen2", None).eval()
    batch = played(policy, Sampling(max_tokens=6))
    with torch.no_grad():
        for weight in policy.model.model.layers.parameters():
            weight.mul_(2.2 if weight.dim() > 1 else 1.0)
    policy = policy.to(torch.bfloat16).float()
    right = policy.prefix_sharing.mask

    def wrong(completion, depth, owner):
        asks, offers = completion[:, None, :, None], (completion == 0) & (depth == 0)
        return annotate_mask(right(completion, depth, owner) & ~((asks > 0) & offers[:, None, None]), completion, owner)

    tokens = policy.extract_tokens(batch)
    sequences = _select_longest(tokens.lengths, tokens.with_images())
    with torch.no_grad():
        alone = policy.score_packed(tokens, [[(row,) for sequence in sequences for row in sequence]], batch).logprobs
        policy.prefix_sharing.mask = wrong
        error = (policy.score_packed(tokens, [sequences], batch).logprobs - alone).abs().max()
    assert 0.04 < error < 0.1  # 16 steps of bf16 are 0.125
    policy = policy.to(torch.bfloat16)
    weights = [parameter.detach().clone() for parameter in policy.parameters()]
    assert not any(map(shares_prefix, policy.choose_packing(tokens, batch)))
    assert "cannot share it: log-probs or entropies would change by" in caplog.text
    policy.prefix_sharing.exact.clear()
    policy.prefix_sharing.mask = right
    assert any(map(shares_prefix, policy.choose_packing(tokens, batch)))
    assert all(torch.equal(p, w) and p.dtype == w.dtype for p, w in zip(policy.parameters(), weights))


def test_one_pass_is_one_call_of_the_network():
    policy = built("qwen2", None)
    batch = played(policy, Sampling(max_tokens=14, stop=tuple("abcdefgh0123")))
    policy.one_pass = True
    calls = []
    policy.model.register_forward_hook(lambda *_: calls.append(1))
    policy(batch)
    policy(batch)
    policy(batch.select(torch.tensor([0])))
    assert len(calls) == 2 + 3  # the measurement, and one each


def test_a_batch_that_does_not_say_who_shares_reads_rows_alone():
    policy = built("qwen2", None)
    batch = played(policy, Sampling(max_tokens=6))
    alone = Batch({name: column for name, column in batch.items() if name != "prompt_id"})
    assert_close(policy(alone).logprobs, policy(batch).logprobs, atol=1e-5, rtol=1e-5)
    assert not any(map(shares_prefix, policy.choose_packing(policy.extract_tokens(alone), alone)))


def test_entropies_are_compared_where_a_policy_is_decided():
    """Log-probs of choices near 0 hide another distribution."""
    policy = built("qwen2", None).eval()
    tokens = policy.extract_tokens(played(policy, Sampling(max_tokens=6)))

    def score(batches):
        return torch.stack([torch.zeros(8), torch.full((8,), 0.01 * len(batches[0]))])

    assert not policy.prefix_sharing.verify(tokens, score, policy.model)


def test_rows_with_images_are_compared_first():
    lengths = Lengths(np.array([0, 0, 1, 1, 2, 2]), np.array([50, 10, 40]), np.array([3, 4, 5, 6, 7, 8]))
    rows = {row for sequence in _select_longest(lengths, np.array([False, True, False])) for row in sequence}
    assert {2, 3} <= rows and _select_longest(lengths, np.array([False, True, False]))[0] == (3, 2)


@pytest.mark.parametrize(("factor", "truncation"), [(200.0, {}), (1.0, {"top_k": 1})])
def test_a_wrong_mask_is_noticed_where_every_choice_is_certain(factor, truncation):
    """A wrong position by a hundredth leaves log-probs and entropies of a certain policy, or of one kept id, at 0."""
    policy = built("qwen2", None).eval()
    with torch.no_grad():
        policy.model.model.norm.weight.mul_(factor)
    batch = played(policy, Sampling(max_tokens=6, **truncation))
    tokens = policy.extract_tokens(batch)
    assert any(map(shares_prefix, policy.choose_packing(tokens, batch)))
    policy.prefix_sharing.exact.clear()
    whole, pack = policy(batch), BatchTokens.pack

    def shift(self, packed, mask, multiple=1):
        inputs = pack(self, packed, mask, multiple)
        moved = 1.01 if shares_prefix(packed) else 1.0
        return replace(inputs, tensors={**inputs.tensors, "position_ids": inputs.tensors["position_ids"] * moved})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BatchTokens, "pack", shift)
        policy.prefix_sharing.exact.clear()
        assert not any(map(shares_prefix, policy.choose_packing(tokens, batch)))
        policy.prefix_sharing.exact = dict.fromkeys(policy.prefix_sharing.exact, True)
        with torch.no_grad():
            wrong = policy(batch)
    assert (wrong.logprobs - whole.logprobs).abs().max() < 1e-3
