"""Sizes of model types that the rules of `configs` do not make valid, and types that cannot be made tiny."""

from __future__ import annotations

from typing import Any

MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_expand": 2, "mamba_chunk_size": 8}
NO_LATENT_GROUPS = {"num_key_value_heads": 4}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
QSA = {
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8, "indexer_compress_ratio": 2,
    "hc_lowrank": 8, "ngram_vocab_size_base": 100, "split_ngram_parts": 1,
}
OVERRIDES: dict[str, dict[str, Any]] = {
    "axk1": NO_LATENT_GROUPS,
    "axk2": NO_LATENT_GROUPS,
    "bailing_hybrid": NO_LATENT_GROUPS,
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "codegen": {"rotary_dim": 4},
    "deepseek_v3": NO_LATENT_GROUPS,
    "deepseek_v32": NO_LATENT_GROUPS,
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 64},
    "glm4_moe_lite": NO_LATENT_GROUPS,
    "glm_moe_dsa": NO_LATENT_GROUPS,
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {**MAMBA, "layer_types": ["linear_attention", "full_attention"]},
    "kimi_linear": NO_LATENT_GROUPS,
    "longcat_flash": NO_LATENT_GROUPS,
    "minicpm3": NO_LATENT_GROUPS,
    "sarvam_mla": NO_LATENT_GROUPS,
    "youtu": NO_LATENT_GROUPS,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "ministral": {"head_dim": 8},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "nemotron_h": {"n_groups": 2, "mamba_num_heads": 4, "chunk_size": 8},
    "reformer": {"is_decoder": True},
    "roc_bert": {"shape_embed_dim": 16, "pronunciation_embed_dim": 16},
    "xlm": {"emb_dim": 32},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    "cohere_compass_text": {"rope_parameters": {kind: dict(ROPE) for kind in ("full_attention", "sliding_attention")}},
    "deepseek_v2": {**NO_LATENT_GROUPS, "num_experts_per_tok": 2, "n_routed_experts": 4, "moe_intermediate_size": 16},
    "dory": {"num_hidden_layers": 3, "n_input_layers": 1, "n_output_layers": 1, "n_recurrent_layers": 1,
             "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16},
    "dots3_note": {"num_key_value_heads": 4},
    "dots3_note_text": {"num_key_value_heads": 4},
    "gemma3n_text": {"intermediate_size": 48, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
                     "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0]},
    "gemma4_text": {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4, "expert_layer_period": 2, "expert_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "qwen4_exp_text": QSA,
    "reformer": {"is_decoder": True, "axial_pos_embds_dim": [16, 16], "axial_pos_shape": [16, 16], "lsh_attn_chunk_length": 8, "local_attn_chunk_length": 8},
    "xlstm": {"qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "zaya": {"num_experts_per_tok": 1},
}
"""By model type: arguments of its configuration; nested configurations are dictionaries."""

NOT_TINY: dict[str, str] = {}
"""By model type: why no tiny checkpoint is built."""
