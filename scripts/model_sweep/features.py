"""What else is tried on a tiny checkpoint of a type: adapters, videos, and what mixtures of experts add."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoProcessor

from mmrl.policies.text.loading import add_lora, merge_lora
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from scripts.model_sweep.checkpoints import build_checkpoint
from scripts.model_sweep.checks import POLICIES
from scripts.model_sweep.experts import CHECKS, EXACT, check_experts, expert_types
from scripts.model_sweep.plain import load_plain

COLUMNS = ("LoRA", "DDP", "FSDP2", "vLLM", "video", *CHECKS)


@dataclass
class Features:
    """What was measured of one type: "yes", or why not, by column; what is missing was not tried."""

    kind: str
    family: str
    results: dict[str, str] = field(default_factory=dict)


def measure_types(types: Sequence[tuple[str, str]], results: Path) -> list[Features]:
    """Measure types that the results file lacks, and add them to it one by one."""
    features = read_features(results)
    known = {(each.kind, each.family) for each in features}
    missing = [pair for pair in types if pair not in known]
    mixtures = set(expert_types(special_ids(character_tokenizer()))) if missing else set()
    for kind, family in missing:
        features.append(Features(kind, family, measure_type(kind, family, (kind, family) in mixtures)))
        print(family, kind, features[-1].results, flush=True)
        results.write_text(json.dumps([asdict(each) for each in features], indent=1) + "\n")
    return features


def read_features(results: Path) -> list[Features]:
    """Read the features of earlier calls."""
    return [Features(**fields) for fields in json.loads(results.read_text())] if results.exists() else []


def measure_type(kind: str, family: str, mixture: bool) -> dict[str, str]:
    """Build a tiny checkpoint of a type and try its features."""
    folder = Path(tempfile.mkdtemp(prefix="sweep_models_"))
    try:
        build_checkpoint(kind, family, folder / "start")
        results = {"LoRA": try_adapters(str(folder / "start"), family)}
        if family == "image":
            results["video"] = try_videos(str(folder / "start"))
        if mixture:
            results |= check_experts(kind, family, folder)
        return results
    finally:
        shutil.rmtree(folder)


def try_adapters(path: str, family: str) -> str:
    """Try adapters on all linear layers: gradients reach them, and merged weights have the same logits."""
    ids, generator = torch.arange(5, 25)[None], torch.Generator().manual_seed(0)
    try:
        model = add_lora(load_plain(path, family), {"r": 2})
        model(input_ids=ids, use_cache=False).logits.log_softmax(-1)[0, :-1].gather(
            1, ids[0, 1:, None]
        ).sum().backward()
        factors = {name: weight for name, weight in model.named_parameters() if ".lora_B." in name}
        idle = sorted(name for name, weight in factors.items() if weight.grad is None or not weight.grad.any())
        with torch.no_grad():
            for name, weight in factors.items():
                if name not in idle:
                    weight.add_(torch.randn(weight.shape, generator=generator) * 0.3)
            logits = model(input_ids=ids, use_cache=False).logits
            difference = float((merge_lora(model)(input_ids=ids, use_cache=False).logits - logits).abs().max())
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if len(idle) == len(factors):
        return "no adapter has a gradient"
    if not difference < EXACT * (1 + float(logits.abs().max())):
        return f"merged weights differ by {difference:.1g}"
    parts = sorted({name.partition(".lora_B.")[0].rpartition(".")[2] for name in idle})
    return f"yes, but not {', '.join(parts)}" if parts and family == "text" else "yes"


def try_videos(path: str) -> str:
    """Return whether prompts with videos are those of transformers, which loading measures."""
    try:
        if getattr(AutoProcessor.from_pretrained(path), "video_processor", None) is None:
            return "no video processor"
        policy: Any = POLICIES["image"](path=path)
        if not policy.video_probes():
            return "no probe with a video"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return policy.video_refusal or "yes"
