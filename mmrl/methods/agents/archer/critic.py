"""ArCHer's critic: twin Q and V of utterances, their targets and the advantage that the actor is given.

ArCHer, 2024, arXiv:2402.19446; released code, YifeiZhou02/ArCHer. A state s is the dialogue so far, an action a is a
whole utterance.

- y_Q,k = r + gamma (1 - done) V_target,k(s'): `q_targets`
- V_k is fitted to Q_target,k(s, a') of an utterance a' that the policy samples now: `critic_loss`
- A = min_k Q_k(s, a) - min_k V_k(s): `utterance_advantages`
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mmrl.policies.text.loading import build_value_head


@dataclass(frozen=True)
class Transition:
    """One stored utterance: the ids of the state and of the utterance, its reward, and the ids of the next state."""

    key: str  # of the prompt
    state: Tensor  # [P]
    utterance: Tensor  # [T]
    reward: float
    following: Tensor | None  # [P']; None where the episode is over


def q_targets(
    reward: Tensor,  # [N]
    next_v: Tensor,  # [N, 2] target V of the next state
    done: Tensor,  # [N] bool
    gamma: float,
) -> Tensor:  # [N, 2]
    """TD target of each Q head, r + gamma (1 - done) V_target,k(s')."""
    return reward[:, None] + gamma * torch.where(done[:, None], 0.0, next_v)


def critic_loss(
    q: Tensor,  # [N, 2] of stored utterances, with gradient
    v: Tensor,  # [N, 2] of their states, with gradient
    q_target: Tensor,  # [N, 2]
    v_target: Tensor,  # [N, 2] target Q of fresh utterances in the same states
) -> Tensor:  # []
    """Mean over rows of the squared errors of both Q and both V heads."""
    return ((q - q_target.detach()).square() + (v - v_target.detach()).square()).sum(1).mean()


def utterance_advantages(
    q: Tensor,  # [N, 2]
    v: Tensor,  # [N, 2]
) -> Tensor:  # [N]
    """A = min_k Q_k - min_k V_k."""
    return q.amin(1) - v.amin(1)


class UtteranceValues(nn.Module):
    """Two V heads on the last token of a state and two Q heads on the last token of the utterance behind it.

    One pass of a causal network gives both. Its weights start as a copy of the policy's, and the heads predict 0.

    Args:
        model: a causal language model of transformers.
        width: of its hidden states.
    """

    def __init__(self, model: Any, width: int):
        super().__init__()
        self.model = copy.deepcopy(model).requires_grad_(True)
        self.q, self.v = (
            nn.ModuleList(build_value_head(2 * width, None, [nn.Linear(width, 2 * width), nn.ReLU()]) for _ in range(2))
            for _ in range(2)
        )

    def forward(self, states: Sequence[Tensor], utterances: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Q and V [N, 2] each; an utterance without tokens has the Q of its state's last token."""
        device = next(self.parameters()).device
        rows = [torch.cat([state, utterance]).to(device) for state, utterance in zip(states, utterances)]
        # [N, L] padded on the right, where a causal network's earlier tokens do not see it
        ids = pad_sequence(rows, batch_first=True)
        ends = torch.tensor([[len(state), len(row)] for state, row in zip(states, rows)], device=device) - 1
        mask = (torch.arange(ids.shape[1], device=device) <= ends[:, 1:]).long()
        options = {"use_cache": False, "logits_to_keep": 1, "output_hidden_states": True}
        hidden = self.model(input_ids=ids, attention_mask=mask, **options).hidden_states[-1].float()
        state, utterance = hidden.gather(1, ends[..., None].expand(-1, -1, hidden.shape[-1])).unbind(1)  # [N, D] each
        q, v = (torch.cat([head(at) for head in heads], 1) for heads, at in ((self.q, utterance), (self.v, state)))
        return q, v
