"""Options that follow from a checkpoint. No vLLM needed."""

import json

import pytest
from transformers import CONFIG_MAPPING

from mmrl.engines.vllm.options import engine_options

KEYS = ("qwen2", "mixtral", "gemma3_text", "gpt_oss", "llama4_text")
STATES = ("qwen3_next", "granitemoehybrid", "bamba", "falcon_h1", "nemotron_h", "jamba", "mamba", "mamba2", "minimax")


@pytest.mark.parametrize("kind", [*KEYS, *STATES])
def test_prompts_are_kept_where_layers_have_keys_and_values_alone(kind, tmp_path):
    """vLLM keeps recurrent states by blocks only where prompts are read in chunks, which its CPU build does not do."""
    CONFIG_MAPPING[kind]().save_pretrained(tmp_path)
    options = engine_options(tmp_path, on_cpu=True, dtype="float32")
    assert options["enable_prefix_caching"] is (kind in KEYS) and options["enable_chunked_prefill"] is False


def test_a_type_that_transformers_does_not_know_is_left_to_vllm(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no_such_model"}))
    assert engine_options(tmp_path, on_cpu=True)["enable_prefix_caching"] is False
