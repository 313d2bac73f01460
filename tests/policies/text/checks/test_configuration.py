"""policy.config: what transformers would keep without using it, or what makes another model, is refused by name."""

import pytest
import torch

from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.malformed.files.policies import SMALL

VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
VLM = {
    "text_config": SMALL,
    "vision_config": {"model_type": "clip_vision_model", **VISION, "image_size": 16, "patch_size": 8},
}
NAMES = [
    ("num_hidden_layer", "num_hidden_layers"),
    ("num_hidden_Layers", "num_hidden_layers"),
    ("hiddensize", "hidden_size"),
    ("n_layer", "leave it out"),
    ("n_embd", "leave it out"),
    ("attention_droput", "attention_dropout"),
    ("tie_weights", "tie_word_embeddings"),
    ("tie_word_embedding", "tie_word_embeddings"),
    ("num_experts", "leave it out"),
    ("layer_type", "layer_types"),
    ("sliding_windows", "sliding_window"),
    ("rope_tetha", "rope_theta"),
    ("torch_dtype", "policy.dtype"),
    ("dtype", "policy.dtype"),
    ("attn_implementation", "policy.attention"),
    ("_attn_implementation", "leave it out"),
    ("quantization_config", "policy.quantization"),
    ("auto_map", "leave it out"),
    ("trust_remote_code", "leave it out"),
    ("output_attentions", "leave it out"),
    ("return_dict", "leave it out"),
    ("", "leave it out"),
    ("self", "leave it out"),
    ("kwargs", "leave it out"),
    ("text_config", "leave it out"),
]
"""Names that no qwen2 has, and what the message says."""
VALUES = [
    {"hidden_size": "x"},
    {"hidden_size": None},
    {"hidden_size": 2.5},
    {"num_hidden_layers": -1},
    {"num_hidden_layers": [2]},
    {"num_hidden_layers": 10**5, "hidden_size": 10**4},
    {"vocab_size": 10**9},
    {"intermediate_size": 10**9},
    {"pad_token_id": 3},
    {"layer_types": ["x"]},
    {"layer_types": ["full_attention"] * 7},
    {"rms_norm_eps": "x"},
    {"use_cache": 3},
    {"id2label": 3},
    {"tie_word_embeddings": "no"},
]
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
KINDS = ["qwen", "Qwen2", "", None, 3, "llama ", "os"]


@pytest.mark.parametrize(("name", "hint"), NAMES)
def test_names_that_no_configuration_has(name, hint):
    with pytest.raises(ValueError, match=r"policy\.config") as error:
        TextPolicy(config={**SMALL, name: 2})
    assert repr(name) in str(error.value) or f".{name}" in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_values_that_no_model_has(values):
    with pytest.raises(ValueError, match=r"policy\.config"):
        TextPolicy(config={**SMALL, **values})


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_architectures_that_do_not_exist(kind):
    with pytest.raises(ValueError, match=r"policy\.config\.model_type"):
        TextPolicy(config={**SMALL, "model_type": kind})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"image_size": 16}, "'image_size'"),
        ({"text_config": {**SMALL, "num_hidden_layer": 2}}, r"text_config: .*num_hidden_layer"),
        ({"vision_config": {**VLM["vision_config"], "layers": 2}}, r"vision_config: .*'layers'"),
        ({"vision_config": VISION}, "image_size must be"),
        ({"vision_config": {**VLM["vision_config"], "patch_size": 7}}, "no multiple"),
        ({"vision_config": {**VLM["vision_config"], "patch_size": 0}}, "patch_size must be"),
        ({"vision_config": None}, "vision_config must be"),
        ({"text_config": "qwen2"}, "text_config must be"),
        ({"text_config": {**SMALL, "dtype": "float16"}}, r"policy\.dtype"),
    ],
    ids=str,
)
def test_parts_of_a_vision_language_model(change, expected):
    with pytest.raises(ValueError, match=expected):
        VisionLanguagePolicy(config={**VLM, **change})


def test_a_scorer_is_checked_too():
    with pytest.raises(ValueError, match="did you mean 'num_hidden_layers'"):
        ScoringPolicy(config={**SMALL, "num_hidden_layer": 2})


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (
            "qwen2",
            {
                "hidden_size": 32,
                "rope_theta": 5e5,
                "attention_dropout": 0.0,
                "sliding_window": None,
                "use_sliding_window": False,
            },
        ),
        (
            "llama",
            {
                "hidden_size": 128,
                "intermediate_size": 64,
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
                "head_dim": 16,
            },
        ),
        ("gpt2", {"n_embd": 32, "n_layer": 1, "n_head": 2}),
        ("gpt2", {"hidden_size": 32, "num_hidden_layers": 1}),
        ("mixtral", {"hidden_size": 32, "num_experts": 2, "num_experts_per_tok": 1}),
        ("gemma3_text", {"layer_types": ["full_attention"], "num_hidden_layers": 1}),
        ("phi3", {"hidden_size": 32, "rope_scaling": None, "original_max_position_embeddings": 32}),
        ("llava", {"text_config": {"model_type": "qwen2", "hidden_size": 32}}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_names_that_a_configuration_has(kind, given):
    assert build_config(kind, given).model_type == kind


def test_layers_alone_can_be_too_many(monkeypatch):
    """100,000 layers of 128 and 384 are 100000 * 128 * (256 + 768) weights, 49 GiB in four bytes; 24 GiB are there."""
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 24 * 2**18}.get)
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 10**5, "vocab_size": 64}
    with pytest.raises(ValueError, match=r"num_hidden_layers=100000 .* at least 49 GiB"):
        build_config("qwen2", sizes)


def test_a_large_model_is_planned_and_not_built():
    large = {**SMALL, "hidden_size": 2**15, "intermediate_size": 2**17, "num_hidden_layers": 100}
    with pytest.raises(ValueError, match="GiB of weights"):
        build_config("qwen2", {name: value for name, value in large.items() if name != "model_type"})
    with torch.device("meta"):
        assert build_config("qwen2", {name: value for name, value in large.items() if name != "model_type"})
