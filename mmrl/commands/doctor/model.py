"""Check that the checkpoint of a run computes here what it computes in transformers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.commands.doctor.machine import Finding
from mmrl.config.wiring import build_nested
from mmrl.core.errors import is_user_error
from mmrl.policies.text.fidelity import verdicts


def check_model(policy: Any) -> Finding | None:
    """Load the checkpoint of a policy, which compares it with transformers, and report the largest difference.

    Args:
        policy: its class and arguments, as plain values.

    Returns:
        None for a policy without a checkpoint, and for one that is not compared.
    """
    arguments = policy.get("init_args") if isinstance(policy, Mapping) else None
    if not arguments or not arguments.get("path"):
        return None
    verdicts.known.clear()
    try:
        build_nested(policy)
    except Exception as error:
        if not is_user_error(error):
            raise
        return Finding("model", str(error), good=False, essential=True)
    if not verdicts.known:
        return None
    *_, verdict = verdicts.known.values()
    rows = "share prompts" if verdict.shares else "are padded" if verdict.pads else "have equal lengths"
    nats = max(verdict.differences.values())
    text = f"log-probs and entropies within {nats:.0e} nats of transformers alone; rows {rows}"
    videos = f"; prompts with videos are refused: {verdict.videos}" if verdict.videos else ""
    return Finding("model", f"{text}{f'; {verdict.line}' if verdict.line else ''}{videos}")
