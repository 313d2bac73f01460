"""ILQL's policy: twin Q, target Q and V heads on a language model's states, and decoding perturbed by Q - V.

LMRL-Gym, 2023, arXiv:2311.18232; Implicit Language Q Learning, 2022, arXiv:2206.11871, section 4.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.policies.base import Action
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.weights import fill, read_weights

HEADS = "token_values.safetensors"


def build_head(width: int, outputs: int) -> nn.Sequential:
    """Build a perceptron with one hidden layer of twice the width, which predicts 0 before training."""
    head = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, outputs))
    nn.init.zeros_(head[2].weight)
    nn.init.zeros_(head[2].bias)
    return head


class TokenValues(nn.Module):
    """Two Q heads, their target networks and a V head on states [..., D] before each token.

    Args:
        width: D.
        vocabulary: V, the number of ids.
    """

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.v = build_head(width, 1)
        self.q = nn.ModuleList(build_head(width, vocabulary) for _ in range(2))
        self.target_q = copy.deepcopy(self.q).requires_grad_(False)

    def predict_q(self, states: Tensor) -> Tensor:
        """Q [..., 2, V] of every id."""
        return torch.stack([head(states) for head in self.q], dim=-2)

    def predict_target(self, states: Tensor) -> Tensor:
        """The smaller target Q [..., V] of every id."""
        return torch.stack([head(states) for head in self.target_q], dim=-2).amin(-2)

    def predict_v(self, states: Tensor) -> Tensor:
        """V [...]."""
        return self.v(states).squeeze(-1)


class ValueGuidedPolicy(TextPolicy):
    """Text policy with values of tokens: it samples from softmax((logits + beta (min_k Q_target,k - V)) / temperature).

    `forward` scores the unperturbed language model, the policy that ILQL clones. Beside log-probs it returns `values`
    [N, T], and of the batch's choices `q` [N, T, 2], `min_target_q` [N, T] without gradient and `q_logprobs` [N, T, 2],
    the log-softmax of each Q head.

    Args:
        path: of a checkpoint, or of a folder that `save_pretrained` wrote, with its heads.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        beta: weight of the advantage in decoding, nats per reward; 0 samples the language model.
        options: further arguments of `TextPolicy`, such as `lora` or `dtype`.
    """

    optional = ("value_head", "token_values")
    capturable = None  # replayed decode steps have no states for the heads
    beta = 0.0  # until the language model is built and compared with transformers

    def __init__(
        self, path: str | None = None, config: dict[str, Any] | None = None, beta: float = 16.0, **options: Any
    ):
        check_at_least(0, "policy", beta=beta)
        super().__init__(path, config, value_head=False, hidden_layers=[1.0], **options)
        self.beta = beta
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        self.token_values = TokenValues(self.hidden_size, vocabulary)
        if path is not None and (saved := Path(path) / HEADS).exists():
            fill(self.token_values, read_weights(saved, "save the policy there again"), str(saved))

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"values", "q", "min_target_q", "q_logprobs"}

    def canary(self) -> Mapping[str, Any]:
        if self.beta:
            raise NotImplementedError(
                f"{type(self).__name__} decodes with its values (policy.beta={self.beta:g}), and engine=vllm has none; "
                "use engine=local, or policy.beta=0 for the language model alone"
            )
        return super().canary()

    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        with self._perturb_logits():
            return super().act_groups(observation, owner, sampling, noise)

    @contextmanager
    def _perturb_logits(self) -> Iterator[None]:
        """Add beta (Q - V) to what the output embeddings compute, whose input are the states that the heads read."""

        def add_advantage(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
            states = inputs[0].to(self.token_values.v[0].weight.dtype)
            values = self.token_values
            return logits + self.beta * (values.predict_target(states) - values.predict_v(states)[..., None])

        if not self.beta:
            yield
            return
        hook = self.model.get_output_embeddings().register_forward_hook(add_advantage)
        try:
            yield
        finally:
            hook.remove()

    def forward(self, batch: Batch) -> PolicyOutput:
        out = super().forward(batch)
        states = out.extra.pop("hidden_states")[:, :, -1].to(self.token_values.v[0].weight.dtype)  # [N, T, D]
        chosen = batch["action"][..., None]  # [N, T, 1]
        q = self.token_values.predict_q(states).float()  # [N, T, 2, V]
        q = q.gather(-1, chosen[:, :, None].expand(-1, -1, 2, -1)).squeeze(-1), q.logsumexp(-1)
        with torch.no_grad():
            target = self.token_values.predict_target(states).float().gather(-1, chosen).squeeze(-1)
        out.values = self.token_values.predict_v(states).float()
        out.extra |= {"q": q[0], "min_target_q": target, "q_logprobs": q[0] - q[1]}
        return out

    def save_pretrained(self, folder: str | Path) -> None:
        """As TextPolicy, with the heads beside it."""
        super().save_pretrained(folder)
        save_file(self.token_values.state_dict(), Path(folder) / HEADS)
