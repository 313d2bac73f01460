"""Snapshots: frozen copies of a policy, one per version in use."""

from __future__ import annotations

import copy

import torch

from mmrl.policies.base import Policy


class Snapshots:
    """One copy for each version in use, in evaluation mode. Frozen parameters are shared; old copies are overwritten.

    Acting and scoring leave the mode of a copy as it is, so that two threads may use one.
    """

    def __init__(self) -> None:
        self._used: dict[int, Policy] = {}
        self._spare: list[Policy] = []

    def of(self, policy: Policy, version: int) -> Policy:
        """The policy as it is now, or as it was when this version was first asked for."""
        if version not in self._used:
            self._used[version] = self._refresh(policy) if self._spare else _copy(policy)
        return self._used[version]

    def keep(self, versions: set[int]) -> None:
        """Keep these versions; the other copies may be overwritten."""
        for version in set(self._used) - versions:
            self._spare.append(self._used.pop(version))

    def clear(self) -> None:
        """Forget all copies."""
        self._used, self._spare = {}, []

    @torch.no_grad()
    def _refresh(self, policy: Policy) -> Policy:
        spare = self._spare.pop()
        pairs = [*zip(spare.parameters(), policy.parameters()), *zip(spare.buffers(), policy.buffers())]
        if any(mine is its and its.requires_grad for mine, its in pairs):  # thawed since
            return _copy(policy)
        for mine, its in pairs:
            if mine is not its:
                mine.copy_(its)
        return spare


def _copy(policy: Policy) -> Policy:
    frozen = {id(p): p for p in policy.parameters() if not p.requires_grad}
    return copy.deepcopy(policy, frozen).eval()
