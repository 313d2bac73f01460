"""Decoding from a cache that holds prompts once says what one full pass says."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from mmrl.policies.text.cache import PreallocatedCache, PreallocatedLayer, StateCache, build_cache
from mmrl.policies.text.packing.prefix_attention import set_prefix_sharing
from tests.policies.text.oracle import TINY

WINDOW = {**TINY, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}


def model(options):
    torch.manual_seed(0)
    options = dict(options)
    config = AutoConfig.for_model(options.pop("model_type"), vocab_size=50, **options)
    return AutoModelForCausalLM.from_config(config).eval()


def decode(network, prompts, attention, result, owner, kept, cache):
    """Logits of every token of `made`, the prompts read once and two rows dropped on the way."""
    out = []
    places = (attention.cumsum(1) - 1).clamp(min=0)
    network(prompts, attention_mask=attention, position_ids=places, past_key_values=cache, use_cache=True)
    cache.expand(owner)
    mask, rows, alive = attention[owner], result, torch.arange(len(owner))
    for t in range(result.shape[1]):
        if t == 3:
            cache.batch_select_indices(kept)
            mask, rows, alive = mask[kept], rows[kept], alive[kept]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        positions = mask.sum(1, keepdim=True) - 1
        step = dict(attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
        logits = network(rows[:, t : t + 1], **step).logits[:, -1]
        if t == 0 and cache.ignores_prefix():
            cache.unshare()
            logits = network(rows[:, t : t + 1], **step).logits[:, -1]
        out.append((alive, logits))
    return out


@pytest.mark.parametrize("length", [7, 90], ids=["copied", "held once"])
@pytest.mark.parametrize("options", [TINY, WINDOW], ids=["full", "sliding"])
@torch.no_grad()
def test_logits_are_those_of_a_full_pass_after_prompts_are_shared_and_rows_are_dropped(options, length):
    network, owner, kept = model(options), torch.tensor([1, 0, 1, 1, 2]), torch.tensor([4, 3, 1])
    prompts, result = torch.randint(1, 50, (3, length)), torch.randint(1, 50, (5, 6))
    attention = torch.ones_like(prompts)
    attention[1, :3] = 0  # a shorter one
    set_prefix_sharing(network.config, "sdpa", True)
    cache = build_cache(network, max_new_tokens=6)
    steps = decode(network, prompts, attention, result, owner, kept, cache)
    network.set_attn_implementation("sdpa")
    rows, mask = torch.cat([prompts[owner], result], 1), torch.nn.functional.pad(attention[owner], (0, 6), value=1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    expected = network(rows, attention_mask=mask, position_ids=places, use_cache=False).logits
    for t, (alive, logits) in enumerate(steps):
        torch.testing.assert_close(logits, expected[alive, length + t], atol=1e-5, rtol=1e-5)
    assert cache.get_seq_length() == length + 6
    for layer in cache.layers:
        assert layer.keys.data_ptr() == layer._buffers[0].data_ptr()  # nothing was copied to make room
        if length == 90:
            assert layer.prefix.keys.shape[0] == 3 and layer.keys.shape[-2] == 6  # prompts 2, 1 and 0 still have rows


@torch.no_grad()
def test_a_model_with_an_attention_of_its_own_gets_copies():
    """One that takes the keys and values that the cache returns for all there is."""
    network, owner, kept = model(TINY), torch.tensor([0, 1, 0]), torch.tensor([2, 0])
    prompts, result = torch.randint(1, 50, (2, 80)), torch.randint(1, 50, (3, 5))
    cache = PreallocatedCache(max_new_tokens=5, share_prefixes=True)  # although the network is not told
    steps = decode(network, prompts, torch.ones_like(prompts), result, owner, kept, cache)
    expected = network(torch.cat([prompts[owner], result], 1), use_cache=False).logits
    for t, (alive, logits) in enumerate(steps):
        torch.testing.assert_close(logits, expected[alive, 80 + t], atol=1e-5, rtol=1e-5)
    assert all(layer.prefix is None for layer in cache.layers)


def test_more_tokens_than_there_is_room_for_are_refused():
    layer = PreallocatedLayer(max_new_tokens=1)
    layer.update(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4))
    layer.batch_select_indices(torch.tensor([0, 0]))
    layer.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))
    with pytest.raises(RuntimeError, match="holds 3 tokens at most, and 4"):
        layer.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))


def test_architectures_with_other_states_keep_their_own_cache():
    network = model(TINY)
    network.config.layer_types = ["linear_attention", "full_attention"]
    cache = build_cache(network, max_new_tokens=3)
    assert type(cache) is StateCache and cache.reads_mask()
    network.config.layer_types = ["linear_attention"] * 2
    assert not build_cache(network, max_new_tokens=3).reads_mask()
