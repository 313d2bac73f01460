"""A policy that is given a prompt as long as its context."""

import pytest
import torch

from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.text.policy import TextPolicy

SMALL = {"model_type": "qwen2", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 32}


def test_a_policy_refuses_a_prompt_without_room_for_an_answer():
    torch.manual_seed(0)
    policy = TextPolicy(config={**SMALL, **HEADS})
    noise, sampling = Noise([1]), Sampling(max_tokens=2)
    short = policy.collate([{"input_ids": torch.ones(20, dtype=torch.long)}])
    assert policy.act(short, sampling, noise).action.shape[0] == 1
    long = policy.collate([{"input_ids": torch.ones(32, dtype=torch.long)}])
    with pytest.raises(ValueError, match="32 positions of the model"):
        policy.act(long, sampling, noise)
