"""Sizes of model types that the rules of `configs` do not make valid, and types that cannot be made tiny."""

from __future__ import annotations

from typing import Any

MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_expand": 2, "mamba_chunk_size": 8}
NO_LATENT_GROUPS = {"num_key_value_heads": 4}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
PINPOINTS = [[32, 64], [64, 32]]
CODES = {
    "base_channels": 32,
    "channel_multiplier": [1, 1, 1, 1],
    "num_res_blocks": 1,
    "latent_channels": 32,
    "embed_dim": 32,
}
"""A small encoder of pictures as codes."""
QSA = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 256,
    "indexer_compress_ratio": 2,
    "hc_lowrank": 8,
    "ngram_vocab_size_base": 100,
    "split_ngram_parts": 1,
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
    "longcat_flash": {**NO_LATENT_GROUPS, "zero_expert_num": 4},
    "minicpm3": NO_LATENT_GROUPS,
    "sarvam_mla": NO_LATENT_GROUPS,
    "youtu": NO_LATENT_GROUPS,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "ministral": {"head_dim": 8},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "nemotron_h": {"n_groups": 2, "mamba_num_heads": 4, "chunk_size": 8},
    "roc_bert": {"shape_embed_dim": 16, "pronunciation_embed_dim": 16},
    "xlm": {"emb_dim": 32},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    "cohere_compass_text": {"rope_parameters": {kind: dict(ROPE) for kind in ("full_attention", "sliding_attention")}},
    "deepseek_v2": {**NO_LATENT_GROUPS, "num_experts_per_tok": 2, "n_routed_experts": 4, "moe_intermediate_size": 16},
    "dory": {
        "num_hidden_layers": 3,
        "n_input_layers": 1,
        "n_output_layers": 1,
        "n_recurrent_layers": 1,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16},
    "dots3_note": {"num_key_value_heads": 4},
    "dots3_note_text": {
        "num_key_value_heads": 4,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_q_lora_rank": 16,
        "swa_kv_lora_rank": 16,
        "swa_head_dim": 16,
        "swa_qk_nope_head_dim": 8,
        "swa_qk_rope_head_dim": 8,
        "swa_v_head_dim": 8,
    },
    "gemma3n_text": {
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
    },
    "gemma4_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
    },
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_dt_rank": 4,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "qwen4_exp_text": QSA,
    "reformer": {
        "is_decoder": True,
        "axial_pos_embds_dim": [16, 16],
        "axial_pos_shape": [16, 16],
        "lsh_attn_chunk_length": 8,
        "local_attn_chunk_length": 8,
    },
    "xlstm": {"qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "attention_hidden_size": 64,
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "num_key_value_heads": 4,
        "mamba_dt_rank": 4,
    },
    **{
        kind: {"rope_parameters": {**ROPE, "mrope_section": [2, 1, 1], "partial_rotary_factor": 1.0}}
        for kind in (
            "glm4v_text",
            "glm4v_moe_text",
            "glm_ocr_text",
            "qwen2_5_vl_text",
            "qwen2_vl_text",
            "paddleocr_vl_text",
            "qwen2_5_omni_text",
            "glm46v_text",
        )
    },
    "gemma3": {"mm_tokens_per_image": 4},
    "t5gemma2": {"mm_tokens_per_image": 4},
    "shieldgemma2": {"mm_tokens_per_image": 4},
    "llava_next": {"image_grid_pinpoints": PINPOINTS},
    "llava_next_video": {"image_grid_pinpoints": PINPOINTS},
    "llava_onevision": {"image_grid_pinpoints": PINPOINTS},
    "vipllava": {"vision_feature_layers": [-1, -2]},
    "mistral4_text": {"num_key_value_heads": 4},
    "mistral4": {"num_key_value_heads": 4},
    "llama4_vision_model": {
        "intermediate_size": 128,
        "vision_output_dim": 32,
        "projector_input_dim": 32,
        "projector_output_dim": 32,
    },
    "mllama_vision_model": {"intermediate_layers_indices": [0, 1], "vision_output_dim": 96},
    "zaya": {"num_experts_per_tok": 1},
    "aria": {"projector_patch_to_query_dict": {49: 4}, "vision_config": {"image_size": 980, "patch_size": 140}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "deepseek_ocr2_text": {"num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"]},
    "dots3_note_vision_encoder": {"adapter_in_dim": 32, "adapter_out_dim": 32, "mlp_layer_types": ["dense", "dense"]},
    "dots3_note_audio_encoder": {"adapter_input_size": 32, "adapter_out_dim": 32},
    "ernie4_5_vl_moe_text": {"rope_parameters": {**ROPE, "mrope_section": [1, 1, 2]}},
    "gemma3n": {
        "vision_config": {"architecture": "test_convnext", "hidden_size": 64},
        "vision_soft_tokens_per_image": 1,
    },
    "gemma4_assistant": {
        "text_config": {
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
            "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "num_kv_shared_layers": 2,
        }
    },
    "glm5_next_text": {"num_key_value_heads": 4, "qk_rope_head_dim": 0},
    "granite4_vision": {
        "image_grid_pinpoints": PINPOINTS,
        "deepstack_layer_map": [[-1, 0]],
        "downsample_rate": "1/2",
        "vision_config": {"hidden_size": 64},
    },
    "molmo2_adapter": {"vision_feature_layer": [-1, -2]},
    "muse_spark_audio": {"num_hidden_layers": 4, "hidden_sizes": [16, 16, 16, 16], "depths": [1, 1, 1, 1]},
    "wavtokenizer": {"codebook_dim": 32},
    "wavtokenizer_encoder": {"codebook_dim": 32, "codebook_size": 8},
    "apertus1p5_vision_tokenizer": {
        **CODES,
        "codebook_size": 8,
        "attn_resolutions": [1],
        "channel_multiplier": [1, 1, 1, 1, 1],
    },
    "apertus1p5": {"image_token_offset": 80, "audio_token_offset": 88},
    "chameleon_vqgan": {**CODES, "num_embeddings": 8, "resolution": 32},
    "emu3_vqgan": {**CODES, "codebook_size": 8, "attn_resolutions": [1]},
    "janus_vqgan": {**CODES, "num_embeddings": 8, "num_patches": 4, "image_token_embed_dim": 32},
    "deepseek_ocr2_sam_vision_model": {
        "downsample_channels": [16, 32],
        "num_hidden_layers": 1,
        "global_attn_indexes": [],
        "image_size": 192,
        "patch_size": 4,
    },
    "got_ocr2": {"vision_config": {"image_size": 128, "patch_size": 2, "num_hidden_layers": 1, "output_channels": 8}},
    "unlimited_ocr_sam_vision_model": {"downsample_channels": [16, 32], "global_attn_indexes": [1]},
    "sam_vision_model": {"global_attn_indexes": [0, 1]},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
    "hunyuan_vl_text": {"head_dim": 8, "rope_parameters": {**ROPE, "mrope_section": [2, 1, 1]}},
    "mistral_large4_text": {"num_key_value_heads": 4},
    "molmo2_vision": {"image_size": [32, 32], "num_position_embeddings": 16},
    "muse_glimmer": {"out_hidden_size": 128},
    "muse_spark": {"out_hidden_size": 128},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 0},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 0},
    "step3p5": {"sliding_window": 8},
    "perception_lm": {
        "vision_config": {
            "architecture": "vit_pe_core_large_patch14_336",
            "model_args": {"embed_dim": 32, "depth": 2, "num_heads": 4, "img_size": [32, 32], "patch_size": 8},
        }
    },
    "fast_vlm": {"vision_config": {"architecture": "fastvit_t8", "hidden_size": 768}},
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
}
"""By model type: arguments of its configuration; nested configurations are dictionaries."""

PROCESSORS: dict[str, dict[str, Any]] = {
    "aria": {"size_conversion": {980: 4}},
    "deepseek_ocr2": {"patch_size": 4},
    "fast_vlm": {"patch_size": 32},
    "granite4_vision": {"downsample_rate": "1/2"},
    "aya_vision": {"img_size": 32, "downsample_factor": 2},
    "gemma3": {"image_seq_length": 4},
    "shieldgemma2": {"image_seq_length": 4},
    "t5gemma2": {"image_seq_length": 4},
    "mistral3": {"spatial_merge_size": 2},
    "mistral4": {"spatial_merge_size": 2},
    "mistral_large4": {"spatial_merge_size": 2},
    "llama4": {"patch_size": 8, "pixel_shuffle_ratio": 0.5},
    "perception_lm": {"pooling_ratio": 1},
    "video_llava": {"vision_feature_select_strategy": "default"},
}
"""By model type: arguments of its processor."""
IMAGE_PROCESSORS: dict[str, dict[str, Any]] = {
    "deepseek_ocr2": {"size": {"height": 192, "width": 192}, "tile_size": 192},
    "dots3_note": {"temporal_patch_size": 1},
    "got_ocr2": {"size": {"height": 128, "width": 128}},
    "perception_lm": {"tile_size": 32, "max_num_tiles": 4},
    "cohere2_vision": {"patch_size": 2},
    "inkling2": {"size": {"height": 16, "width": 16}},
    "inkling2_loop": {"size": {"height": 16, "width": 16}},
    "inkling_mm_model": {"size": {"height": 8, "width": 8}},
    "lfm2_vl": {"encoder_patch_size": 8, "tile_size": 32, "min_image_tokens": 4, "max_image_tokens": 16},
    "molmo2": {"overlap_margins": [1, 1], "max_crops": 2},
    "deepseek_vl_hybrid": {"high_res_size": {"height": 32, "width": 32}},
    "gemma4": {"max_soft_tokens": 70},
    "gemma4_unified": {"max_soft_tokens": 70},
    "paligemma": {"image_seq_length": 16},
    "step3p7": {"vision_patch_size": 8, "downsampler_stride": 4, "patch_size": 32},
}
"""By model type: arguments of its image processor."""
VIDEO_PROCESSORS: dict[str, dict[str, Any]] = {"ernie4_5_vl_moe": {"draw_on_frames": False}}
"""By model type: arguments of its video processor."""
IMAGE_TOKENS = {"granite_docling": "<image>"}
"""By model type: the token that stands for an image in a text."""
FURTHER_TOKENS: dict[str, list[str]] = {
    "chameleon": [f"IMGIMG{letter}Z" for letter in "ABCDEFGH"],
    "emu3": [f"<|visual token {number:06}|>" for number in range(8)] + ["<|extra_200|>"],
    "fuyu": ["|SPEAKER|", "|NEWLINE|", "<0x00>", "<0x01>", "<0x04>"],
}
"""By model type: tokens that its tokenizer has beside those that its processor names."""
CONFIG_TOKENS: dict[str, dict[str, Any]] = {
    "molmo2": {
        "image_start_token_id": "<im_start>",
        "low_res_image_start_token_id": "<low_res_im_start>",
        "image_end_token_id": "<im_end>",
    },
    "chameleon": {"vocabulary_map": ["<image>", *FURTHER_TOKENS["chameleon"]]},
    "emu3": {"vocabulary_map": ["<image>", *FURTHER_TOKENS["emu3"]]},
    "qwen2_5_omni_thinker": {"vision_start_token_id": "<vision_bos>"},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": "<vision_bos>"},
    "aya_vision": {"image_token_id": "<|IMG_PATCH|>", "image_token_index": "<|IMG_PATCH|>"},
    "ovis2": {
        "image_token_id": "<IMG_ATOM>",
        "visual_indicator_token_ids": ["<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"],
    },
}
"""By model type: tokens whose ids its configuration names, where they are not those of `IMAGE_TOKENS`."""
FEATURE_TOKENS = {
    **dict.fromkeys(("gemma3", "shieldgemma2", "t5gemma2"), "<image>"),
    "molmo2": "<im_patch>",
    "llama4": "<|patch|>",
}
"""By model type: the token that its features replace, where it is not the one that stands for an image in a text."""
TEMPLATES: dict[str, list[str]] = {
    "hunyuan_vl": ["image_start_token", "image_token", "image_end_token"],
    "qwen2_5_omni_thinker": ["vision_bos_token", "image_token", "vision_eos_token"],
    "qwen3_omni_moe_thinker": ["vision_bos_token", "image_token", "vision_eos_token"],
}
"""By model type: what its chat template writes for an image, tokens by the names of the processor's attributes."""
_GLM = ["<|begin_of_video|>", "video_token", "<|end_of_video|>"]
VIDEO_TEMPLATES: dict[str, list[str]] = {
    "qwen2_5_omni_thinker": ["vision_bos_token", "video_token", "vision_eos_token"],
    "qwen3_omni_moe_thinker": ["vision_bos_token", "video_token", "vision_eos_token"],
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm46v", "glm_ocr", "glmga", "glm5_next"), _GLM),
}
"""By model type: what its chat template writes for a video, where it is not the token of a video alone."""
NOT_TINY: dict[str, str] = {}
"""By model type: why no tiny checkpoint is built."""
