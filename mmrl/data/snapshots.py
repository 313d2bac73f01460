"""Snapshots: frozen copies of a policy, one per version in use."""

from __future__ import annotations

import torch

from mmrl.policies.base import Policy, copy_policy


class Snapshots:
    """One copy per version in use, in evaluation mode. Frozen parameters are shared; unused copies are overwritten.

    Acting and scoring leave the mode of a copy as it is, so that two threads may use one.
    """

    def __init__(self) -> None:
        self._used: dict[int, Policy] = {}
        self._spare: list[Policy] = []

    def of(self, policy: Policy, version: int) -> Policy:
        """Return a copy with the weights of `version`; a version that is new is copied from the current policy."""
        if version not in self._used:
            self._used[version] = self._refresh(policy) if self._spare else copy_policy(policy).eval()
        return self._used[version]

    def keep(self, versions: set[int]) -> None:
        """Keep these versions; allow the other copies to be overwritten."""
        for version in set(self._used) - versions:
            self._spare.append(self._used.pop(version))

    def clear(self) -> None:
        """Delete all copies."""
        self._used, self._spare = {}, []

    @torch.no_grad()
    def _refresh(self, policy: Policy) -> Policy:
        spare = self._spare.pop()
        pairs = [*zip(spare.parameters(), policy.parameters()), *zip(spare.buffers(), policy.buffers())]
        if any(target is source and source.requires_grad for target, source in pairs):  # unfrozen since the copy
            return copy_policy(policy).eval()
        for target, source in pairs:
            if target is not source:
                target.copy_(source)
        return spare
