"""CapturedEngine: the local engine with policies that replay captured operations when they act."""

from __future__ import annotations

from typing import Any

from mmrl.engines.local import LocalEngine
from mmrl.policies.base import Policy

MAX_PARAMETERS = 20_000_000  # with more the arithmetic takes longer than Python, and comparing costs more than it saves


class CapturedEngine(LocalEngine):
    """Samples as LocalEngine does, the same numbers in less time where the policy is small and on a CPU."""

    def sync(self, policy: Policy, version: int) -> None:
        super().sync(policy, version)
        if policy.captured is None and sum(weight.numel() for weight in policy.parameters()) <= MAX_PARAMETERS:
            policy.captured = _build_captured(policy)


def _build_captured(policy: Policy) -> Any:
    """Build the captured form of a policy's slowest Python code when it acts; None for other policies.

    Imported here, since a control policy needs neither transformers nor a vision encoder.
    """
    if policy.capturable == "decode_steps":
        from mmrl.capture.decoding import CapturedDecoding

        return CapturedDecoding()
    if policy.capturable == "contexts":
        from mmrl.capture.contexts import CapturedContexts

        return CapturedContexts()
    return None
