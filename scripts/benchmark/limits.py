"""Upper limits of an accelerator from its data sheet, and the utilisation reached."""

from __future__ import annotations

import sys
from typing import Any

from benchmark.settings import Settings

TFLOPS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "RTX 4090": 165}
"""Dense bf16 matrix arithmetic with fp32 sums, 1e12 operations a second."""
BANDWIDTH = {"H200": 4800, "H100": 3350, "A100": 2039, "L40S": 864, "L4": 300, "RTX 4090": 1008}
"""Device memory, 1e9 bytes a second; of the SXM or largest form."""


def _look_up(table: dict[str, int], option: str, given: float | None) -> float | None:
    """Data-sheet figure of this machine's GPU; None, with a hint, if it is unknown."""
    if given is not None:
        return given
    import torch

    name = torch.cuda.get_device_name()
    result = next((value for part, value in table.items() if part in name), None)
    if result is None:
        print(f"{name}: its limit is not known here; give {option}", file=sys.stderr)
    return result


def needed_tokens(prompt: int, length: float, prompts: int, group: int) -> float:
    """Tokens that a learn step needs: each prompt once, each completion."""
    return prompts * (prompt + group * length)


def learn_utilisation(out: dict[str, Any], settings: Settings, tflops: float | None) -> dict[str, float | None]:
    """Model-FLOP utilisation of the learn step: 6 operations per parameter and needed token, over the peak.

    Repeated prompts count once, so a step that computes them again gains nothing by it.
    """
    peak = _look_up(TFLOPS, "--peak-tflops", tflops)
    if peak is None:
        return {"learn_mfu": None}
    tokens = needed_tokens(out["prompt_tokens"], out["mean_length"], settings.prompts, settings.group)
    return {"learn_mfu": 6 * out["parameters"] * tokens / out["learn_seconds"] / (peak * 1e12)}


def decode_limit(
    weight_bytes: int, cache_bytes_per_token: int, rows: int, prompt: int, length: float, gbytes: float | None
) -> float | None:
    """Tokens per second if a decode step reads all weights once and each row's mean-length cache once."""
    peak = _look_up(BANDWIDTH, "--bandwidth", gbytes)
    if peak is None:
        return None
    read = weight_bytes + rows * cache_bytes_per_token * (prompt + length / 2)
    return rows * peak * 1e9 / read
