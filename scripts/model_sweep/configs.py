"""Tiny configurations of any model type: sizes are recognised by the names that transformers gives them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from scripts.model_sweep.overrides import OVERRIDES

IMAGE_SIZE, PATCH = 32, 8
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDE, CONTEXT, WINDOW = 2, 32, 4, 2, 8, 48, 512, 8
SIZES: tuple[tuple[str, int], ...] = (
    (
        r"(hidden_size|d_model|n_embd|embed_dim|dim|model_dim|embedding_size|hidden_dim|width|word_embed_proj_dim)",
        HIDDEN,
    ),
    (
        r"(text|vision|encoder|decoder|projection|projector|image_text|attention|out|dense|patch_embed)_hidden_size",
        HIDDEN,
    ),
    (
        r"(projection_dim|out_hidden_size|output_hidden_size|vision_output_dim|text_embed_dim|hidden_size_global)",
        HIDDEN,
    ),
    (
        r"((num_|n_|encoder_|decoder_)?(hidden_)?layers?|depth|n_layer|(encoder|decoder|num)_(de|en)?coder_layers)",
        LAYERS,
    ),
    (r"num_(en|de)coder_layers|(en|de)coder_layers|num_blocks", LAYERS),
    (r"(num_|n_)?(attention_|encoder_attention_|decoder_attention_)?heads?|(en|de)coder_attention_heads|n_head", HEADS),
    (r"num_(encoder|decoder)_attention_heads", HEADS),
    (r"num_key_value_heads|num_kv_heads|n_head_kv|multi_query_group_num|swa_num_key_value_heads", KV_HEADS),
    (r"swa_num_attention_heads", HEADS),
    (
        r"head_dim|swa_head_dim|swa_v_head_dim|qk_nope_head_dim|qk_rope_head_dim|v_head_dim|d_kv|kv_channels|global_head_dim",
        HEAD_DIM,
    ),
    (r"kv_lora_rank|q_lora_rank", 16),
    (r"index_head_dim", 16),
    (r"index_topk|keep_window_size", CONTEXT // 2),
    (r"index_n_heads", 4),
    (r".*intermediate_size(_mlp)?|.*ffn_dim|d_ff|ffn_hidden_size|n_inner|dim_ff|mlp_dim|expert_ffn_hidden_size", WIDE),
    (r"num_experts|n_routed_experts|num_local_experts|moe_num_experts|num_routed_experts", 4),
    (
        r"num_experts_per_tok|num_experts_per_token|moe_topk|moe_k|top_k_experts|experts_per_token|num_selected_experts",
        2,
    ),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"n_shared_experts|num_shared_experts|moe_num_shared_experts", 1),
    (r"max_position_embeddings|n_positions|max_seq_len|n_ctx|max_sequence_length|model_max_length", CONTEXT),
    (r"sliding_window|sliding_window_size|window|attention_window|attention_chunk_size", WINDOW),
    (r"image_size|img_size|posemb_grid_size", IMAGE_SIZE),
    (r"patch_size", PATCH),
    (r"vocab_size|unpadded_vocab_size|vocab_size_per_layer_input", 0),
    (r"hidden_size_per_layer_input|laurel_rank", 8),
    (r"first_k_dense_replace|num_dense_layers", 1),
    (r"num_nextn_predict_layers|num_kv_shared_layers|pretraining_tp", 0),
    (r"max_window_layers", 1),
    (r"linear_(key_|value_)?head_dim|mamba_d_head|mamba_head_dim|state_size|mamba_d_state|ssm_state_size", 8),
    (r"linear_num_(key_|value_)?heads|mamba_n_heads|mamba_num_heads", 4),
)
"""Regular expression of a size's name, and its tiny value; 0 stands for the tokenizer's vocabulary."""
KINDS = ("layer_types", "mlp_layer_types", "layers_block_type", "block_types", "attention_types")
"""Lists with a kind for every layer: a tiny model has one layer of each kind."""
MROPE = [2, 1, 1]
"""Sections of half a head of 8 numbers."""


def causal_types() -> list[str]:
    """List the model types of AutoModelForCausalLM."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def image_types() -> list[str]:
    """List the model types of AutoModelForImageTextToText."""
    return sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)


def every_type() -> list[tuple[str, str]]:
    """List the pairs of model type and family, "text" or "image", of the installed transformers."""
    return [(kind, "text") for kind in causal_types()] + [(kind, "image") for kind in image_types()]


def tiny_config(kind: str, ids: Mapping[str, int]) -> PreTrainedConfig:
    """Build a tiny configuration of a model type.

    Args:
        kind: model type of transformers.
        ids: `vocab_size`, `pad_token_id`, `bos_token_id` and `eos_token_id` of the tokenizer.
    """
    return _shrink(CONFIG_MAPPING[kind], ids, OVERRIDES.get(kind, {}))


def _shrink(cls: type[PreTrainedConfig], ids: Mapping[str, int], overrides: Mapping[str, Any]) -> PreTrainedConfig:
    return cls(**shrink_arguments(cls, ids, overrides))


def shrink_arguments(
    cls: type[PreTrainedConfig], ids: Mapping[str, int], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Tiny values of the arguments of a configuration class, those of nested configurations as dictionaries."""
    signature = inspect.signature(cls.__init__).parameters
    default = build_default(cls)
    arguments: dict[str, Any] = {}
    for name, parameter in signature.items():
        value = read_default(default, name, parameter.default)
        if isinstance(value, int) and not isinstance(value, bool) and (size := find_size(name)) is not None:
            arguments[name] = ids["vocab_size"] if not size and "vocab" in name else size
    arguments |= {name: ids[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id") if name in signature}
    if "is_decoder" in signature:
        arguments["is_decoder"] = True
    arguments |= choose_layer_kinds(default, signature, arguments)
    rope = read_default(default, "rope_parameters", None)
    if isinstance(rope, dict) and "mrope_section" in rope:
        arguments["rope_parameters"] = {**rope, "mrope_section": MROPE}
    for name, nested in cls.sub_configs.items():
        inner = getattr(default, name, None)
        usual = getattr(getattr(cls, "sub_configs_defaults", {}).get(name), "model_type", None)
        kind = type(inner) if isinstance(inner, PreTrainedConfig) else CONFIG_MAPPING.get(usual, nested)
        if isinstance(kind, type) and issubclass(kind, PreTrainedConfig):
            own = {**OVERRIDES.get(kind.model_type, {}), **overrides.get(name, {})}
            arguments[name] = {"model_type": kind.model_type, **shrink_arguments(kind, ids, own)}
    return arguments | {name: value for name, value in overrides.items() if name not in cls.sub_configs}


def read_default(default: Any, name: str, declared: Any) -> Any:
    """Value of an argument in the default configuration, where it states one number for all layers."""
    try:
        return getattr(default, name, declared)
    except Exception:  # an attribute that differs between layers
        return declared


def build_default(cls: type[PreTrainedConfig]) -> Any:
    try:
        return cls()
    except Exception:  # some configurations have no valid default
        return None


def find_size(name: str) -> int | None:
    return next((size for pattern, size in SIZES if re.fullmatch(pattern, name)), None)


def choose_layer_kinds(default: Any, signature: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Lists of kinds of layers in which every kind that the default model has occurs, and their length."""
    count = next((name for name in ("num_hidden_layers", "num_layers", "n_layer") if name in arguments), None)
    lists = {
        name: list(dict.fromkeys(values))
        for name in KINDS
        if name in signature
        and isinstance(values := getattr(default, name, None), list | tuple)
        and all(isinstance(value, str) for value in values)
        and values
    }
    if count is None or not lists:
        return {}
    longest = max(LAYERS, *map(len, lists.values()))
    return {count: longest, **{name: (kinds * longest)[:longest] for name, kinds in lists.items()}}
