import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.checkpoints import qwen2
from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from benchmark import limits, prepare, problems  # noqa: E402
from benchmark.process import Steps, summary  # noqa: E402
from benchmark.settings import Settings  # noqa: E402

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
WORDS = ("--prompts", "2", "--group", "2", "--prompt-tokens", "5", "--new-tokens", "3", "--steps", "2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return qwen2(tmp_path_factory.mktemp("model"), **SMALL)


def line(script, *words):
    """The one JSON line on stdout."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [quick_python(), f"scripts/{script}", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-5000:]
    (only,) = done.stdout.splitlines()
    return json.loads(only)


def test_a_step_of_grpo_is_one_line(model):
    result = line("bench_grpo.py", "--model", str(model), *WORDS)
    for name in ("seconds_per_step", "tokens_per_second", "rollout_seconds", "learn_seconds", "peak_rss_gib"):
        assert result[name] > 0
    assert result["rollout_seconds"] + result["learn_seconds"] <= result["seconds_per_step"]  # medians of two are means
    assert result["mean_length"] == 3 and result["prompt_tokens"] == 5 and len(result["rounds"]) == 1
    assert result["settings"]["prompts"] == 2 and "torch" in result["versions"] and "ratio" not in result


def test_an_engine_is_one_line(model):
    result = line("bench_engine.py", "--model", str(model), *WORDS)
    assert result["tokens_per_second"] > 0 and result["seconds"] > 0 and result["peak_rss_gib"] > 0
    assert {"prefill_seconds", "decode_seconds", "sync_seconds"} <= set(result)
    assert result["mean_length"] == 3 and result["prompt_tokens"] == 5
    # keys and values of 2 layers, 4 heads of 8; fp32
    assert result["cache_bytes_per_token"] == 2 * 2 * 32 * 4


def build(model, folder, **changes):
    prepare.prepare(
        str(model), Settings(folder=str(folder), **{"prompts": 4, "prompt_tokens": 7, "steps": 1, **changes})
    )
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    return loaded, AutoTokenizer.from_pretrained(folder), problems.read(folder)


def test_fixed_lengths_end_by_an_id_that_the_model_cannot_draw(model, tmp_path):
    loaded, tokenizer, given = build(model, tmp_path)
    assert tokenizer.eos_token_id >= loaded.config.vocab_size
    assert loaded.generation_config.eos_token_id == [tokenizer.eos_token_id]
    assert len(set(given["texts"])) == 8  # a problem of its own for every prompt of every step
    assert {len(tokenizer(text)["input_ids"]) for text in given["texts"]} == {7}


def test_variable_lengths_have_the_mean_that_was_asked_for(model, tmp_path):
    loaded, tokenizer, given = build(model, tmp_path, mean_length=8.0, new_tokens=32)
    ends = loaded.generation_config.eos_token_id
    assert tokenizer.eos_token_id in ends and not {tokenizer.pad_token_id, tokenizer.bos_token_id} & set(ends)
    ids = torch.tensor([tokenizer(text)["input_ids"] for text in given["texts"]]).repeat(100, 1)
    torch.manual_seed(1)
    drawn = loaded.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=32, eos_token_id=ends
    )[:, 7:]
    ended = torch.isin(drawn, torch.tensor(ends))
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, drawn.shape[1]).float()
    # 512 samples chose the set and 800 judge it, of a distribution whose std is about its mean: 4 (8/512^.5 + 8/800^.5)
    assert abs(lengths.mean() - 8) < 2.6


def test_prompts_that_no_question_fits_are_refused():
    with pytest.raises(SystemExit, match="--prompt-tokens 3 cannot be met"):
        problems.questions(2, 3, lambda text: len(text) + 10, seed=0)


def test_the_first_step_is_no_figure():
    steps = Steps()
    steps.seconds, steps.cpu = [9.0, 1.0, 2.0, 4.0], [9.0, 1.0, 1.5, 2.0]
    result = summary(steps, [100, 10, 10, 10], [5.0, 1.0, 2.0, 3.0])
    assert result["seconds_per_step"] == 2 and result["cpu_seconds_per_step"] == 1.5
    assert result["tokens_per_second"] == 5 and result["mean_length"] == 2


def test_limits_are_arithmetic():
    # 2 prompts of 100 and 3 completions of 10 each, trained on without repeating a prompt
    assert limits.needed_tokens(100, 10, prompts=2, group=3) == 2 * (100 + 30)
    out = {"prompt_tokens": 100, "mean_length": 10, "parameters": 10**9, "learn_seconds": 0.5}
    result = limits.learn_utilisation(out, Settings("", prompts=2, group=3), tflops=6.24)
    assert result["learn_mfu"] == pytest.approx(0.5)  # 6 * 260e9 operations in half a second, of 6.24e12 a second
    # 8 rows at 1000 bytes of weights and 8 * 10 * (20 + 5) of cache a step, at 3e9 bytes a second
    assert limits.decode_limit(1000, 10, 8, prompt=20, length=10, gbytes=3) == pytest.approx(8e6)
