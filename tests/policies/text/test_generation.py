"""`generate`: first tokens that all prompts share are read once, and change no draw."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.text.cache import build_cache
from mmrl.policies.text.generation import generate, next_logits
from mmrl.policies.text.packing.prefix_sharing import count_common
from mmrl.policies.text.policy import TextPolicy

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def policy(kind="llama", **changes):
    torch.manual_seed(0)
    return TextPolicy(config={"model_type": kind, **SIZES, "num_key_value_heads": 2, **changes}).eval()


def pad_left(common, rests):
    """Prompts of `common` equal tokens and a rest of each length, padded on the left: ids and mask [N, P]."""
    numbers = torch.Generator().manual_seed(1)
    first = torch.randint(4, 90, (common,), generator=numbers)
    width = common + max(rests)
    ids, mask = torch.zeros(len(rests), width, dtype=torch.long), torch.zeros(len(rests), width, dtype=torch.long)
    for row, rest in enumerate(rests):
        own = torch.randint(4, 90, (rest,), generator=numbers)
        own[0] = 4 + row  # after the common tokens all prompts differ
        ids[row, width - common - rest :], mask[row, width - common - rest :] = torch.cat([first, own]), 1
    return ids, mask


def sample(model, ids, mask, common):
    owner = torch.arange(len(ids)).repeat_interleave(2)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        return generate(
            partial(next_logits, model.model),
            {"input_ids": ids},
            mask,
            positions,
            owner,
            build_cache(model.model, 6),
            Sampling(temperature=1.0, max_tokens=6),
            Noise(list(range(len(owner)))),
            lambda drawn: drawn[:, -1] > 80,  # rows leave at different times
            common,
        )


@pytest.mark.parametrize("rests", [(5, 5, 5), (3, 9, 1)], ids=["equal lengths", "other lengths"])
@pytest.mark.parametrize("common", [7, 80], ids=["copied prompts", "shared prompts"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_common_tokens_that_are_read_once_change_no_draw(kind, common, rests):
    model = policy(kind)
    ids, mask = pad_left(common, rests)
    assert count_common(ids, mask) == common
    alone, once = sample(model, ids, mask, 0), sample(model, ids, mask, common)
    assert torch.equal(alone.ids, once.ids) and torch.equal(alone.lengths, once.lengths)
    assert_close(alone.logprobs, once.logprobs, atol=1e-5, rtol=0)
    other = sample(model, ids.where(ids != ids[0, -common - 1], 5), mask, common)
    assert not torch.equal(other.logprobs, once.logprobs)  # the common tokens are read


def test_a_prompt_keeps_its_last_token_and_no_common_token_is_none():
    ids, mask = pad_left(4, (2, 3))
    assert count_common(ids, mask) == 4
    assert count_common(ids[:1], mask[:1]) == 5
    assert count_common(ids[:1].repeat(2, 1), mask[:1].repeat(2, 1)) == 5
    ids[0, 1] = 91  # its first token
    assert count_common(ids, mask) == 0


@pytest.mark.parametrize(
    ("kind", "changes", "rows", "shares"),
    [
        ("llama", {"hidden_size": 1024}, 10, True),
        ("llama", {"hidden_size": 1024}, 2, False),  # 20 tokens are read in less time than another call takes
        ("llama", {}, 10, False),  # calls of narrow networks cost more
        ("mistral", {"hidden_size": 1024, "sliding_window": 32}, 10, False),  # padding would count in the window
        ("gpt_neo", {"hidden_size": 1024, "attention_types": [[["global"], 2]], "num_layers": 2}, 10, False),
    ],
)
def test_common_tokens_are_read_once_where_that_is_exact_and_saves_time(kind, changes, rows, shares):
    if kind == "gpt_neo":
        model = TextPolicy(config={"model_type": kind, "num_heads": 4, **changes})
    else:
        model = policy(kind, num_hidden_layers=1, **{k: v for k, v in changes.items()})
    ids, mask = pad_left(20, (2,) * rows)
    assert model.prefix_sharing.count_common(ids, mask) == (20 if shares else 0)
