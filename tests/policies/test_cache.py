"""The roomy cache holds what transformers' own dynamic cache holds."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from mmrl.policies.cache import RoomyCache, RoomyLayer, empty_cache
from tests.policies.oracle import TINY

WINDOW = {**TINY, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}


def model(options):
    torch.manual_seed(0)
    options = dict(options)
    config = AutoConfig.for_model(options.pop("model_type"), vocab_size=50, **options)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("options", [TINY, WINDOW], ids=["full", "sliding"])
@torch.no_grad()
def test_logits_are_those_of_a_full_pass_after_prompts_are_shared_and_rows_are_dropped(options):
    network, owner, kept = model(options), torch.tensor([1, 0, 1, 1]), torch.tensor([3, 1])
    prompts, made = torch.randint(1, 50, (2, 7)), torch.randint(1, 50, (4, 6))
    cache = empty_cache(network.config, room=6)
    assert isinstance(cache, RoomyCache)
    network(prompts, past_key_values=cache, use_cache=True)
    cache.batch_select_indices(owner)
    rows = torch.cat([prompts[owner], made], 1)
    expected = network(rows, use_cache=False).logits
    for t in range(6):
        if t == 3:
            cache.batch_select_indices(kept)
            rows, expected = rows[kept], expected[kept]
        logits = network(rows[:, 7 + t : 8 + t], past_key_values=cache, use_cache=True).logits[:, -1]
        torch.testing.assert_close(logits, expected[:, 7 + t], atol=1e-5, rtol=1e-5)
    assert cache.get_seq_length() == 13
    for layer in cache.layers:  # nothing was copied to make room
        assert layer.keys.data_ptr() == layer._buffers[0].data_ptr()


def test_more_tokens_than_there_is_room_for_are_refused():
    layer = RoomyLayer(room=1)
    layer.update(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4))
    layer.batch_select_indices(torch.tensor([0, 0]))
    layer.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))
    with pytest.raises(RuntimeError, match="room for 3 tokens, and 4"):
        layer.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))


def test_architectures_with_other_states_keep_their_own_cache():
    config = AutoConfig.for_model("qwen2", layer_types=["full_attention"] * 2, num_hidden_layers=2)
    config.layer_types = ["linear_attention", "full_attention"]
    config.linear_num_value_heads = 1
    cache = empty_cache(config, room=3)
    assert type(cache) is DynamicCache
