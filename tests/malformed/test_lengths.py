"""Prompts and decodes against the policy, before the first step."""

import json
import logging

import pytest
import torch

from mmrl.__main__ import main
from mmrl.policies.text import TextPolicy
from mmrl.rng import Noise
from mmrl.types import Sampling
from tests.malformed.test_words import with_base

SMALL = {"model_type": "qwen2", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 32}


@pytest.fixture(autouse=True)
def silence():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_question_that_is_longer_than_the_context_is_refused_before_the_first_step(tmp_path, capsys):
    rows = [{"question": "1+1=", "answer": "2"}] * 30 + [{"question": "7" * 200_000, "answer": "7"}]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    # a row of its own belongs to one of the splits
    words = ["task=jsonl", f"task.path={file}", "task.held_out_fraction=0.5", "data.evaluation.count=20"]
    assert main(["fit", *with_base(words, tmp_path / "new")]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "a prompt of 200" in message and "2048 positions" in message and "shorten the prompt" in message
    assert not (tmp_path / "new" / "checkpoints").exists()


def test_a_policy_refuses_a_prompt_without_room_for_an_answer():
    torch.manual_seed(0)
    policy = TextPolicy(config={**SMALL, **HEADS})
    noise, sampling = Noise([1]), Sampling(max_tokens=2)
    short = policy.collate([{"input_ids": torch.ones(20, dtype=torch.long)}])
    assert policy.act(short, sampling, noise).action.shape[0] == 1
    long = policy.collate([{"input_ids": torch.ones(32, dtype=torch.long)}])
    with pytest.raises(ValueError, match="32 positions of the model"):
        policy.act(long, sampling, noise)
