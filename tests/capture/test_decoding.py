"""A replayed decode step draws what the model's own code draws, and gives way where it would not."""

import copy
import pickle

import pytest
import torch

from mmrl.capture.decoding import CapturedDecoding
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY

PROMPTS, GROUP = 3, 4
EQUAL = {**TINY, "num_key_value_heads": TINY["num_attention_heads"]}
"""Without grouped heads, for which transformers traces another attention than it runs: other bits."""
WINDOW = {**TINY, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}


def policy(options=EQUAL, **others):
    torch.manual_seed(0)
    result = TextPolicy(config=dict(options), **others).eval()
    result.captured = CapturedDecoding()
    return result


def observation(length, filled=0, seed=0):
    ids = torch.randint(10, 90, (PROMPTS, length), generator=torch.Generator().manual_seed(seed))
    attention = torch.ones_like(ids)
    attention[1, :filled] = 0
    return {"input_ids": ids, "attention_mask": attention}


def drawn(policy, seen, tokens=48, seed=0):
    """Completions that often stop early, so that rows leave the batch."""
    policy.stop_ids = lambda strings: (list(range(40, 55)), [])
    owner = torch.arange(PROMPTS).repeat_interleave(GROUP)
    noise = Noise(range(seed, seed + len(owner)))
    result = policy.act_groups(seen, owner, Sampling(max_tokens=tokens), noise)
    return result.action, result.behavior_logprobs


def same(policy, *args, **kwargs):
    """With and without capture; gives the graphs and where they were verified."""
    replayed = drawn(policy, *args, **kwargs)
    captured, policy.captured = policy.captured, None
    own = drawn(policy, *args, **kwargs)
    policy.captured = captured
    assert torch.equal(replayed[0], own[0]) and torch.equal(replayed[1], own[1])
    return captured.graph


def cases(graph, name):
    """The values of one kind of case in which some graph was verified."""
    return {case[1] for found in graph.verified.values() for case in found if case[0] == name}


def moved(policy):
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.1 * torch.randn_like(weight))


@pytest.mark.parametrize("filled", [0, 3], ids=["all tokens", "filling"])
@pytest.mark.parametrize("length", [7, 90], ids=["copied", "held once"])
def test_draws_are_the_models_own_as_rows_leave_and_weights_move(length, filled):
    result = policy()
    for seed in range(4):
        capture = same(result, observation(length, filled, seed), seed=seed)
        moved(result)
    ((key, graph),) = capture.graphs.items()
    assert key == (length == 90, filled > 0) and graph is not None
    assert cases(capture, "single") == {True, False}


def test_a_graph_is_used_only_at_lengths_where_it_was_compared():
    result = policy()
    capture = same(result, observation(7), tokens=6)
    lengths = cases(capture, "tokens")
    assert lengths == {8, 9, 10, 11}  # the first token after the prompt shows whether it is seen, by the model itself
    same(result, observation(9), tokens=6)
    assert cases(capture, "tokens") == lengths | {12, 13}


def test_adapters_are_replayed_too():
    result = policy(lora={"r": 2})
    for _ in range(2):
        capture = same(result, observation(7))
        moved(result)
    assert all(capture.graphs.values()) and capture.graphs


HELD = torch.linspace(-1, 1, 200)


def lengthy(module, args, kwargs):
    """A branch on how much is held, which the first steps do not take."""
    held = kwargs["cache"] if "cache" in kwargs else kwargs["past_key_values"]  # the name before transformers 5.24
    long = held.get_seq_length(1) > 14
    return args, {**kwargs, "hidden_states": kwargs["hidden_states"] * (2 if long else 1)}


CODE = {
    "a value": lambda module, args, out: out * (2 if out.sum().item() > 0 else 1),
    "a choice of rows": lambda module, args, out: out + out[out[:, 0, 0] > 0].sum(),
    "a list": lambda module, args, out: out * (2 if out.tolist()[0][0][0] > 0 else 1),
    "numbers of its own": lambda module, args, out: out + HELD[: out.shape[-1]].clone(),
}


@pytest.mark.parametrize("code", CODE.values(), ids=CODE)
def test_code_that_a_record_would_lose_runs_itself(code):
    result = policy()
    result.model.lm_head.register_forward_hook(code)
    assert list(same(result, observation(7)).graphs.values()) == [None]


def test_a_branch_on_the_length_is_noticed_where_it_is_taken():
    result = policy()
    result.model.model.layers[1].self_attn.register_forward_pre_hook(lengthy, with_kwargs=True)
    assert same(result, observation(7), tokens=5).graphs[False, False] is not None
    for seed in range(2):
        assert same(result, observation(7), seed=seed).graphs[False, False] is None


def test_a_replaced_model_is_recorded_anew():
    result, other = policy(), policy({**EQUAL, "num_hidden_layers": 1})
    same(result, observation(7))
    result.model = other.model
    first = result.captured.graph
    assert same(result, observation(7)) is not first and result.captured.model is other.model


def test_replaced_weights_are_noticed_in_the_next_rollout():
    result = policy()
    same(result, observation(7))
    result.model.model.norm.weight = torch.nn.Parameter(torch.randn(result.hidden_size))
    same(result, observation(7))


@pytest.mark.parametrize("filled", [0, 3])
def test_grouped_heads_draw_the_models_own(filled):
    for seed in range(2):
        same(policy(TINY), observation(7, filled, seed), seed=seed)


def test_models_that_mask_by_a_window_run_their_own_code():
    assert same(policy(WINDOW), observation(7)).graphs == {}


def test_copies_of_a_policy_record_for_themselves():
    result = policy()
    same(result, observation(7))
    assert copy.deepcopy(result).captured.graph.graphs == {}
    assert pickle.loads(pickle.dumps(result.captured)).graph.graphs == {}
