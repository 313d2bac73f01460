"""What a text policy takes of transformers' architectures and tokenizers, and what it says about the others."""

import logging

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from mmrl.core.types import Prompt, Sampling
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.policies.text.tokenizer import _warn_once
from tests.policies.text.oracle import TINY, batch_of, completions, decided, largest_log_ratio, plain_logits

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
EAGER = {
    "gemma2": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8},
    "gpt_oss": {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
    "bloom": {"n_head": 4},
}
PROMPTS = [
    Prompt(f"words/train/{i}", ({"role": "user", "content": text},))
    for i, text in enumerate(("a?", "a longer question, with more words", "and this one"))
]
SAMPLING = Sampling(max_tokens=8, temperature=0.8, top_k=30)


def saved(folder, kind="qwen2", tokenizer=None, **options):
    """A checkpoint with random weights, as transformers writes it."""
    torch.manual_seed(0)
    ids = special_ids(character_tokenizer())
    config = AutoConfig.for_model(kind, **{**SIZES, **ids, **options})
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (character_tokenizer() if tokenizer is None else tokenizer).save_pretrained(folder)
    return str(folder)


def exact(policy):
    """Sampling, scoring and the plain model say the same of a batch of prompts of different lengths."""
    done = completions(policy, PROMPTS, SAMPLING)
    assert largest_log_ratio(policy, PROMPTS, done) < 2e-5
    for completion in done:
        logits = plain_logits(policy, completion) / SAMPLING.temperature
        least = logits.topk(SAMPLING.top_k).values[:, -1:]
        expected = logits.masked_fill(logits < least, -torch.inf).log_softmax(-1)
        result = expected.gather(1, completion.action[:, None])[:, 0]
        torch.testing.assert_close(completion.behavior_logprobs, result, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", EAGER)
def test_models_that_torchs_attention_cannot_compute_run_with_their_own(kind, tmp_path, caplog):
    policy = decided(TextPolicy(path=saved(tmp_path, kind, **EAGER[kind])), 3.0).eval()
    (warning,) = [record.getMessage() for record in caplog.records if "attention=eager" in record.getMessage()]
    assert type(policy.model).__name__ in warning and policy.model.config._attn_implementation == "eager"
    exact(policy)


def test_an_attention_that_was_asked_for_is_not_replaced(tmp_path):
    with pytest.raises(ValueError, match=r"policy\.path=.*cannot be loaded"):
        TextPolicy(path=saved(tmp_path), attention="no_such_attention")


def test_a_state_outside_of_transformers_caches_is_refused_by_name():
    with pytest.raises(ValueError, match=r"policy: rwkv keeps its state outside of the caches of transformers"):
        TextPolicy(config={"model_type": "rwkv", "hidden_size": 32, "num_hidden_layers": 2})


def test_a_tokenizer_without_a_pad_token_pads_with_the_end(tmp_path):
    tokenizer = character_tokenizer()
    tokenizer.pad_token = None
    policy = decided(TextPolicy(path=saved(tmp_path / "model", tokenizer=tokenizer, num_key_value_heads=2))).eval()
    assert policy.tokenizer.pad_token_id == policy.tokenizer.eos_token_id == 2
    exact(policy)
    policy.save_pretrained(tmp_path / "export")
    again = TextPolicy(path=str(tmp_path / "export")).eval()
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, SAMPLING))
    with torch.no_grad():
        assert torch.equal(again(batch).logprobs, policy(batch).logprobs)
    scorer = ScoringPolicy(path=str(tmp_path / "model"))
    rows = [scorer.encode({"messages": p.observation["messages"], "answer": "yes"}) for p in PROMPTS]
    together = scorer.scores(scorer.collate(rows))
    alone = torch.cat([scorer.scores(scorer.collate([row])) for row in rows])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_a_tokenizer_without_any_end_is_refused(tmp_path):
    tokenizer = character_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token = None
    with pytest.raises(ValueError, match="has no end-of-sequence token"):
        TextPolicy(path=saved(tmp_path, tokenizer=tokenizer, num_key_value_heads=2))


@pytest.mark.parametrize("bos", ["<bos>", None])
def test_a_base_model_without_a_template_gets_its_bos_and_one_warning(bos, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    _warn_once.cache_clear()
    tokenizer = character_tokenizer()
    tokenizer.chat_template, tokenizer.bos_token = None, bos
    policy = TextPolicy(path=saved(tmp_path, tokenizer=tokenizer, num_key_value_heads=2))
    messages = ({"role": "user", "content": "ab"},)
    words = policy.tokenize("ab").tolist()
    for _ in range(2):
        assert policy.encode({"messages": messages})["input_ids"].tolist() == ([1] if bos else []) + words
    assert policy.engine_prompt({"messages": messages})[0] == ([1] if bos else []) + words
    system, said = {"role": "system", "content": "Add."}, {"role": "assistant", "content": "c"}
    assert policy.prompt_text([system, *messages]) == (bos or "") + "System: Add.\nUser: ab\nAssistant:"
    turns = [*messages, said, *messages]
    assert policy.prompt_text(turns) == (bos or "") + "User: ab\nAssistant: c\nUser: ab\nAssistant:"
    reported = [record.getMessage() for record in caplog.records if "has no chat template" in record.getMessage()]
    assert len(reported) == 1 and ("after '<bos>'" in reported[0]) == bool(bos)


def test_a_template_writes_its_own_bos():
    policy = TextPolicy(config=dict(TINY))
    assert policy.encode(PROMPTS[0].observation)["input_ids"].tolist() == policy.tokenize("a?").tolist()
