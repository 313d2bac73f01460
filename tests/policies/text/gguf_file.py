"""Write small GGUF files as llama.cpp's converter does, and the transformers model that each of them holds."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from mmrl.policies.text.tiny import character_tokenizer, special_ids

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "model.layers": "blk",
}


def write_gguf(path: Path, chat_template: str | None = None, broken: float | None = None) -> torch.nn.Module:
    """Write a Qwen2 model with random weights, its matrices in 8 bits (Q8_0), and return it with the rounded weights.

    Args:
        path: of the file.
        chat_template: in place of the character tokenizer's.
        broken: a number that is put into a weight.
    """
    torch.manual_seed(0)
    tokenizer = character_tokenizer()
    tokens = [*tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))), "ab"]  # the format needs a merge
    config = AutoConfig.for_model("qwen2", **{**SIZES, **special_ids(tokenizer), "vocab_size": len(tokens)})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    special = set(tokenizer.all_special_ids)
    kinds = (gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(len(tokens)))
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(chat_template or tokenizer.chat_template)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(std=0.3)
            if weight.dim() == 1:
                values = weight.add_(1.0).numpy()
                writer.add_tensor(_gguf_name(name), values)
                continue
            if broken is not None and "0.mlp.up_proj" in name:
                weight[0, 0] = broken
            packed = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(_gguf_name(name), packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            weight.copy_(torch.from_numpy(np.copy(gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _gguf_name(name: str) -> str:
    for theirs, own in NAMES.items():
        name = name.replace(theirs, own)
    return name
