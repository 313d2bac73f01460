"""Check before the first step that the policy supports the decodes of a run."""

from __future__ import annotations

from typing import Any

from mmrl.errors import ConfigError


def check_decodes(policy: Any, data: Any) -> None:
    """Refuse a decode of `data.sampling` or `data.evaluation.sampling` that the policy's `check_sampling` refuses."""
    if policy is None or getattr(data, "sampling", None) is None:
        return  # a learner without a policy, or a data module without sampling settings
    decodes = {"data.sampling": data.sampling}
    if getattr(data, "evaluation", None) is not None:
        decodes |= {f"data.evaluation.sampling.{name}": part for name, part in data.evaluation.sampling.items()}
    for key, sampling in decodes.items():
        try:
            policy.check_sampling(sampling)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from error
