"""The gate of offline updates: AM-Q, the return that critics see in rollouts of a learned transition model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import Noise, derive_seed
from mmrl.core.types import Sampling
from mmrl.methods.robots.rl100_offline.models import OfflineModels
from mmrl.methods.robots.rl100_offline.states import read_states

Act = Callable[[Tensor, int], Tensor]
"""The policy: actions [N, A] in states [N, D] at a step of the rollout."""


def accepts(before: float, after: float, min_gain: float) -> bool:
    """Whether J_new - J_old >= delta, with delta = min_gain |J_old|.

    Source: RL-100, 2025, the gate of offline updates, arXiv:2510.14830 (min_gain 0.05).
    """
    return after - before >= min_gain * abs(before)


@torch.no_grad()
def estimate_return(act: Act, models: OfflineModels, states: Tensor, horizon: int) -> float:
    """AM-Q: J(pi) = mean over model rollouts of sum_{t < H} Q(s_t, a_t), one rollout from each of the states [N, D].

    Source: RL-100, 2025, arXiv:2510.14830, after Uni-O4, 2023, section 3.3, arXiv:2311.03351.

    Args:
        act: the policy pi.
        models: Q, the smallest of the critics, and the transition model.
        states: s_0.
        horizon: H, decisions.
    """
    total = torch.zeros(len(states))
    for step in range(horizon):
        action = act(states, step)
        total += models.q(states, action)
        states = models.transition(states, action)
    return float(total.mean())


class ModelGate(L.Callback):
    """Accept the updates of every few iterations only if AM-Q grows by a share of itself; else take them back.

    Refused updates are undone with the optimizer's moments, and the next ones see other states and noise. Policies are
    compared with the same noise in the same first states.

    Args:
        path: checkpoint of a run of method rl100_critics.
        recording: whose episodes' first states begin the rollouts.
        every: iterations between two comparisons; the last one is always compared.
        horizon: H, decisions of a rollout.
        rollouts: number of rollouts; first states are repeated.
        min_gain: delta / |J_old|; none accepts all updates, and AM-Q is measured alone.
        seed: of the noise.
    """

    def __init__(
        self,
        path: str,
        recording: str,
        every: int = 5,
        horizon: int = 4,
        rollouts: int = 256,
        min_gain: float | None = 0.05,
        seed: int = 0,
    ):
        check_at_least(1, "gate", every=every, horizon=horizon, rollouts=rollouts)
        if min_gain is not None:
            check_at_least(0, "gate", min_gain=min_gain)
        self.path, self.recording, self.every, self.horizon = path, recording, every, horizon
        self.rollouts, self.min_gain, self.seed = rollouts, min_gain, seed
        self.value: float | None = None  # J of the accepted policy
        self.accepted, self.refused = 0, 0  # comparisons so far
        self._weights: dict[str, Tensor] = {}  # of the accepted policy
        self._moments: Any = None

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Load the models, and measure the policy that offline learning begins with."""
        self._models = OfflineModels.load(self.path)
        first = torch.from_numpy(read_states(self.recording, first=True)).float()
        self._states = first[torch.arange(self.rollouts) % len(first)]
        if self.value is None:
            self.value = self.measure(pl_module.policy)
            self._store(trainer, pl_module.policy)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        done = trainer.current_epoch + 1
        if done % self.every and done != trainer.max_epochs:
            return
        assert self.value is not None
        before, after = self.value, self.measure(pl_module.policy)
        if accepted := self.min_gain is None or accepts(before, after, self.min_gain):
            self.value, self.accepted = after, self.accepted + 1
            self._store(trainer, pl_module.policy)
        else:
            self.refused += 1
            pl_module.policy.load_state_dict(self._weights)
            trainer.optimizers[0].load_state_dict(copy.deepcopy(self._moments))
        numbers = {"before": before, "after": after, "accepted": float(accepted), "value": self.value}
        pl_module.report({f"gate/{name}": number for name, number in numbers.items()})

    def measure(self, policy: Any) -> float:
        """J of a policy, with the same draws for every policy."""
        seeds = [[derive_seed("gate", self.seed, t, i) for i in range(self.rollouts)] for t in range(self.horizon)]

        def act(states: Tensor, step: int) -> Tensor:
            action = policy.act({"state": states}, Sampling(), Noise(seeds[step])).action
            return action[:, -policy.chunk :].clamp(-1, 1).flatten(1)

        with evaluation_mode(policy):
            return estimate_return(act, self._models, self._states, self.horizon)

    def _store(self, trainer: L.Trainer, policy: Any) -> None:
        self._weights = {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
        self._moments = copy.deepcopy(trainer.optimizers[0].state_dict())

    def state_dict(self) -> dict[str, Any]:
        names = ("value", "accepted", "refused")
        return {**{name: getattr(self, name) for name in names}, "weights": self._weights, "moments": self._moments}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.value, self.accepted, self.refused = (state_dict[name] for name in ("value", "accepted", "refused"))
        self._weights, self._moments = dict(state_dict["weights"]), state_dict["moments"]
