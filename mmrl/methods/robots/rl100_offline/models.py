"""Models of recorded transitions: a learned transition model beside the critics of IQL, and reading all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.policies.control.critic import Critics
from mmrl.policies.control.encoder import perceptron
from mmrl.policies.control.value import ValueNetwork
from mmrl.policies.weights import checkpoint_weights
from mmrl.runs.checkpoint_file import read_weights


class TransitionModel(nn.Module):
    """Transition model s' = s + f(s, a), f a multilayer perceptron.

    Args:
        features: D, length of the state vector.
        actions: numbers of an action: H A of a chunk.
        hidden: widths of the hidden layers, with rectified linear units.
    """

    def __init__(self, features: int, actions: int, hidden: Sequence[int] = (256, 256)):
        super().__init__()
        widths = [features + actions, *hidden]
        self.body, self.head = perceptron(widths, nn.ReLU), nn.Linear(widths[-1], features)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """The states [N, D] after actions [N, A] in states [N, D]."""
        return state + self.head(self.body(torch.cat([state, action], dim=-1))).float()


class TransitionOutput(Output):
    """Error of the transition model in every recorded transition: extra["error"] [N, 1].

    It is the squared error of s', averaged over its numbers, and 0 where the episode terminated: there is no s' then.

    Args:
        model: name of the transition model.
        actor: name of the policy whose actions are stored.
    """

    def __init__(self, model: str = "transition", actor: str = "policy"):
        self.model, self.actor = model, actor

    def gives(self) -> frozenset[str]:
        return frozenset({"error"})

    def models(self) -> frozenset[str]:
        return frozenset({self.model, self.actor})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        actor = ctx.models[self.actor]
        following = {name[5:]: column for name, column in batch.items() if name.startswith("next.")}
        action = actor.to_action(batch["action"][:, 0])
        predicted = ctx.models[self.model](actor.features(batch.observation()), action)
        error = (predicted - actor.features(following)).square().mean(dim=1, keepdim=True)
        error = zero_outside(error, batch["discount"][:, None] > 0)
        return PolicyOutput(error.new_zeros(error.shape), error.new_zeros(error.shape), extra={"error": error})


@dataclass(frozen=True)
class TransitionLoss(Term):
    """Squared error of the next state, averaged over its numbers."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"error"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return zero_outside(out.extra["error"], batch["action_mask"])


@dataclass(frozen=True)
class OfflineModels:
    """Critics, values and the transition model of a run of method rl100_critics.

    Args:
        value: V(s).
        critics: Q(s, a), of which the smallest counts.
        transition: s' of s and a.
    """

    value: nn.Module
    critics: nn.Module
    transition: nn.Module

    @classmethod
    def load(cls, path: str | Path) -> OfflineModels:
        """Read the models of a checkpoint, with the widths that its weights have; they are not trained further.

        Raises:
            ValueError: it is no checkpoint of such a run.
        """
        weights = checkpoint_weights(read_weights(str(path), False), str(path), "models.")
        parts = {name: _strip(weights, f"{name}.") for name in ("value", "target_critic", "transition")}
        if missing := [name for name, part in parts.items() if not part]:
            raise ValueError(
                f"{path}: it has no weights of {missing[0]!r}; name the checkpoint of a run of method=rl100_critics, "
                "as in RUN/checkpoints/last.ckpt"
            )
        # widths of the layers: of V and of the transition model [out, in], of K critics [K, in, out]
        dims, *hidden = _widths(parts["value"], "body.")
        inputs, *critic_hidden = _widths(parts["target_critic"], "weights.", stacked=True)
        count = len(parts["target_critic"]["weights.0"])
        _, *transition_hidden = _widths(parts["transition"], "body.")
        models = (
            ValueNetwork(dims, hidden),
            Critics(dims, inputs - dims, critic_hidden[:-1], count),
            TransitionModel(dims, inputs - dims, transition_hidden),
        )
        for model, part in zip(models, parts.values()):
            model.load_state_dict(part)
            model.requires_grad_(False).eval()
        return cls(*models)

    def q(self, state: Tensor, action: Tensor) -> Tensor:
        """The smallest critic's Q [N] of actions [N, A] in states [N, D]."""
        return self.critics(state, action)[:, 0].amin(dim=-1)

    def advantage(self, state: Tensor, action: Tensor) -> Tensor:
        """A = Q(s, a) - V(s), [N]."""
        return self.q(state, action) - self.value(state)[:, 0]


def _strip(weights: Mapping[str, Tensor], head: str) -> dict[str, Tensor]:
    return {name.removeprefix(head): tensor for name, tensor in weights.items() if name.startswith(head)}


def _widths(weights: Mapping[str, Tensor], head: str, stacked: bool = False) -> list[int]:
    """Inputs of the first layer, then outputs of every layer."""
    named = {
        int(name.split(".")[1]): tensor
        for name, tensor in weights.items()
        if name.startswith(head) and "bias" not in name
    }
    layers = [named[number] for number in sorted(named) if named[number].dim() == 2 + stacked]
    ends = (-2, -1) if stacked else (-1, -2)
    return [layers[0].shape[ends[0]], *(layer.shape[ends[1]] for layer in layers)]
