"""Transfers of weights to vLLM for a sample of types: greedy completions and their log-probs are the policy's.

`.venv-vllm/bin/python -m scripts.model_sweep.vllm_types RESULTS TYPE` adds {"text:TYPE": "yes" or why not} as JSON.
Types that vLLM does not run in float32 are tried again with `RESULTS TYPE bfloat16`: log-probs of sampled completions
are then those of the policy but for its rounding.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch
import transformers
from transformers import CONFIG_MAPPING

from mmrl.core.rng import derive_seed
from mmrl.core.types import Prompt, Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.policies.text.policy import TextPolicy
from tests.checkpoints import TEXT
from tests.policies.text.oracle import largest_log_ratio

EXACT = 1e-4
ROUNDED = 0.1
"""Nats between bfloat16 and float32."""
SIZES = TEXT | {"tie_word_embeddings": False}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
DELTA = {
    **{"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 128},
    **{"linear_value_head_dim": 128, "layer_types": ["linear_attention", "full_attention"], "head_dim": 32},
}
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2}
HYBRIDS = {
    "qwen3_5_text": DELTA,
    "qwen3_next": {**DELTA, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, **EXPERTS},
    "olmo_hybrid": DELTA,
    "lfm2": {"tie_word_embeddings": True, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {
        "tie_word_embeddings": True,
        "layer_types": ["conv", "full_attention"],
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
        **EXPERTS,
    },
    "bamba": {**MAMBA2, "attn_layer_indices": [1]},
    "falcon_h1": {**MAMBA2, "mamba_d_ssm": 128, "head_dim": 32},
    "granitemoehybrid": {**MAMBA2, **LOCAL, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 64},
    "nemotron_h": {
        **{"layers_block_type": ["mamba", "attention"], "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 1},
        **{"ssm_state_size": 16, "expand": 2, "head_dim": 32, "moe_intermediate_size": 32, "n_routed_experts": 4},
    },
    "jamba": {
        **{"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4, "mamba_d_state": 16, "num_experts": 4},
        **{"expert_layer_period": 2, "expert_layer_offset": 1, "num_experts_per_tok": 2},
    },
    "mamba": {"state_size": 16, "expand": 2},
    "mamba2": {"num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1, "expand": 2},
    "falcon_mamba": {"state_size": 16, "expand": 2},
    "minimax": {**LOCAL, "head_dim": 32, "layer_types": ["linear_attention", "full_attention"]},
}
"""Types with recurrent or convolution states."""
PUBLISHED = {kind: {"conv_dim": 64, "block_dim": 64} for kind in ("lfm2", "lfm2_moe")}
"""Fields of published configurations that vLLM reads and transformers does not know."""
SAMPLE = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 32},
    "qwen3_moe": {"moe_intermediate_size": 32, "head_dim": 32, **EXPERTS},
    "qwen2_moe": {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, **EXPERTS},
    "mixtral": LOCAL,
    "olmoe": EXPERTS,
    "gpt_oss": {"head_dim": 32, **LOCAL},
    "granitemoe": LOCAL,
    "phimoe": LOCAL,
    **HYBRIDS,
}
"""Types that are tried, and sizes of theirs."""


def build_policy(kind: str) -> TextPolicy:
    """Build a policy with random weights, whose configuration has what published ones have."""
    names = CONFIG_MAPPING[kind]().to_dict()
    policy = TextPolicy(config={"model_type": kind, **{k: v for k, v in SIZES.items() if k in names}, **SAMPLE[kind]})
    for name, value in PUBLISHED.get(kind, {}).items():
        setattr(policy.model.config, name, value)
    return policy.eval()


def transfer_once(kind: str) -> str:
    """Transfer weights twice to one engine, and compare greedy completions."""
    torch.manual_seed(0)
    policy = build_policy(kind)
    engine, local = VllmEngine(InProcess(cache_gib=0.25)), LocalEngine()
    for version in range(2):
        with torch.no_grad():
            for weight in policy.parameters():
                if weight.dim() > 1:
                    weight.mul_(3.0 if version == 0 else 1.1)
        engine.sync(policy, version)
    local.sync(policy, 1)
    raw = [{"messages": ({"role": "user", "content": "count " * (1 + 4 * i)},)} for i in range(3)]
    requests = [Request(each, derive_seed("vllm", i)) for i, each in enumerate(raw)]
    sampling, worst = Sampling(decode="argmax", max_tokens=16), 0.0
    for theirs, ours in zip(engine.sample(requests, sampling), local.sample(requests, sampling)):
        if theirs.action.tolist() != ours.action.tolist():
            return "it decodes another completion"
        worst = max(worst, float((theirs.behavior_logprobs - ours.behavior_logprobs).abs().max()))
    engine.close()
    return "yes" if worst < EXACT else f"log-probs differ by {worst:.1g} nats"


def transfer_rounded(kind: str, dtype: str) -> str:
    """Transfer weights twice to an engine of another precision, and score what it samples."""
    torch.manual_seed(0)
    policy = build_policy(kind)
    engine = VllmEngine(InProcess(cache_gib=0.25, dtype=dtype))
    prompts = [Prompt(f"a/b/{i}", messages=({"role": "user", "content": "count " * (1 + 4 * i)},)) for i in range(3)]
    requests = [Request(each.observation, derive_seed("vllm", i)) for i, each in enumerate(prompts)]
    engine.sync(policy, 0)
    stale = engine.sample(requests, Sampling(max_tokens=16))
    with torch.no_grad():
        for weight in policy.parameters():
            if weight.dim() > 1:
                weight.mul_(3.0)
    engine.sync(policy, 1)
    done = engine.sample(requests, Sampling(max_tokens=16))
    engine.close()
    if largest_log_ratio(policy, prompts, stale) < 3 * ROUNDED:
        return "other weights have about the same log-probs, so the comparison shows nothing"
    worst = largest_log_ratio(policy, prompts, done)
    return (
        f"yes, in {dtype}: within {ROUNDED:g} nats" if worst < ROUNDED else f"{dtype}: they differ by {worst:.1g} nats"
    )


def main(results: Path, kind: str, dtype: str = "") -> None:
    """Try one type and add what came to the results."""
    try:
        result = transfer_rounded(kind, dtype) if dtype else transfer_once(kind)
    except Exception as error:
        result = re.sub(r" in /dev/shm\S+", "", " ".join(str(error).split()))[:300]
        if isinstance(error, ValueError) and result.startswith("policy"):  # before vLLM was asked
            result = f"transformers {transformers.__version__}, which is installed beside vLLM: {result}"
    known = json.loads(results.read_text()) if results.exists() else {}
    results.write_text(json.dumps(known | {f"text:{kind}": result}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
