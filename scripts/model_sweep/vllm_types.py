"""Transfers of weights to vLLM for a sample of types: greedy completions and their log-probs are the policy's.

`.venv-vllm/bin/python -m scripts.model_sweep.vllm_types RESULTS TYPE` adds {"text:TYPE": "yes" or why not} as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from mmrl.core.rng import derive_seed
from mmrl.core.types import Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.policies.text.policy import TextPolicy
from tests.checkpoints import TEXT

EXACT = 1e-4
SIZES = TEXT | {"tie_word_embeddings": False}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
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
}
"""Types that are tried, and sizes of theirs."""


def transfer_once(kind: str) -> str:
    """Transfer weights twice to one engine, and compare greedy completions."""
    torch.manual_seed(0)
    policy = TextPolicy(config={"model_type": kind, **SIZES, **SAMPLE[kind]})
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


def main(results: Path, kind: str) -> None:
    """Try one type and add what came to the results."""
    try:
        result = transfer_once(kind)
    except Exception as error:
        result = " ".join(str(error).split())[:300]
    known = json.loads(results.read_text()) if results.exists() else {}
    results.write_text(json.dumps(known | {f"text:{kind}": result}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
