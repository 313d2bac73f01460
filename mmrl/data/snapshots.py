"""Snapshots: frozen copies of a policy, one per version in use."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mmrl.distributed.sharding import copy_whole, is_sharded, whole_weights
from mmrl.policies.base import Policy, copy_policy


class Snapshots:
    """One copy per version in use, in evaluation mode. Frozen parameters are shared; unused copies are overwritten.

    Copies of a sharded policy are whole on every process. Acting and scoring leave the mode of a copy as it is, so that
    two threads may use one.
    """

    def __init__(self) -> None:
        self._used: dict[int, Policy] = {}
        self._spare: list[Policy] = []

    def of(self, policy: Policy, version: int) -> Policy:
        """Return a copy with the weights of `version`; a version that is new is copied from the current policy.

        Collective for a new version of a sharded policy.
        """
        if version not in self._used:
            self._used[version] = self._refresh(policy) if self._spare else self._copy(policy)
        return self._used[version]

    def keep(self, versions: set[int]) -> None:
        """Keep these versions; allow the other copies to be overwritten."""
        for version in set(self._used) - versions:
            self._spare.append(self._used.pop(version))

    def clear(self) -> None:
        """Delete all copies."""
        self._used, self._spare = {}, []

    def state_dict(self) -> dict[int, dict[str, Tensor]]:
        """Return by version the trained weights and the buffers of its copy, in host memory."""
        return {
            version: {name: tensor.detach().cpu().clone() for name, tensor in _state(policy).items()}
            for version, policy in self._used.items()
        }

    @torch.no_grad()
    def load_state_dict(self, policy: Policy, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Restore copies of earlier versions of the policy. Collective for a sharded policy."""
        for version, state in states.items():
            target = _state(self.of(policy, version))
            if target.keys() != state.keys():
                wrong = sorted(target.keys() ^ state.keys())[0]
                raise ValueError(
                    f"the checkpoint's weights of version {version} and the policy differ in {wrong!r}; resume with "
                    "data.save_versions=false, which samples with the weights of the checkpoint"
                )
            for name, tensor in target.items():
                tensor.copy_(state[name])

    def _copy(self, policy: Policy) -> Policy:
        if is_sharded(policy):
            return copy_whole(policy, next(iter(self._used.values()), None)).eval()
        return copy_policy(policy).eval()

    @torch.no_grad()
    def _refresh(self, policy: Policy) -> Policy:
        spare = self._spare.pop()
        with whole_weights(policy):
            pairs = [*zip(spare.parameters(), policy.parameters()), *zip(spare.buffers(), policy.buffers())]
            if any(target.requires_grad != source.requires_grad for target, source in pairs) or any(
                target is source and source.requires_grad for target, source in pairs
            ):  # unfrozen since the copy
                return self._copy(policy)
            for target, source in pairs:
                if target is not source and not _is_frozen(target):  # of a sharded policy copies share what is frozen
                    target.copy_(source)
        return spare


def _is_frozen(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) and not tensor.requires_grad


def _state(policy: Policy) -> dict[str, Tensor]:
    """The trained weights and the buffers of a policy, by name."""
    trained = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
    return trained | dict(policy.named_buffers())
