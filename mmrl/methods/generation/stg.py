"""STG: a frozen language model and an adapter write each completion together; a gate chooses who writes a token.

Selective Token Generation for Few-shot Natural Language Generation, 2022, arXiv:2209.08206, and the released code
kakaobrain/stg. With h the frozen model's last state before a token:

    p_0 = softmax(U h)              the frozen model, U its output layer
    p_1 = softmax(U (h + f(h)))     the adapter f
    w   = softmax(g(h))             the gate g, of the two sources
    source z ~ w, token ~ p_z;  log pi(z, token) = log w_z + log p_z(token)

Adapter and gate learn by the policy gradient of this sum. Where the frozen model wrote the token, log p_0 has no
parameter that is trained, and only the gate gets a gradient. A stored choice is z V + token, of a vocabulary of V ids.
A token of a demonstration, whose source is unknown, is 2 V + token: its probability is that of the mixture.

More than 150 lines, since the source of a token is a part of the choice: when it is sampled, scored and imitated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.ops.logprob import logprob_entropy
from mmrl.policies.base import Action
from mmrl.policies.text.frozen.policy import FrozenModelPolicy, build_perceptron


def concatenate_sources(frozen: Tensor, adapter: Tensor, gate: Tensor, temperature: float = 1.0) -> Tensor:
    """Logits [..., 2 V] of source and token together: softmax(result / temperature) = [w_0 p_0, w_1 p_1].

    The temperature divides the logits of the sources' tokens, not those of the gate. Where the gate prefers the frozen
    model, its logits stand in the first half unchanged, so that with w = [1, 0] nothing is left but them.

    Args:
        frozen: [..., V] of the frozen model.
        adapter: [..., V] of the adapter.
        gate: [..., 2] of the sources.
        temperature: of the sources' tokens.
    """
    frozen, adapter = frozen.float(), adapter.float()
    lead = (gate[..., 1:] - gate[..., :1]).float().clamp(MASKED_LOGIT, -MASKED_LOGIT)  # [..., 1] log w_1 - log w_0
    scale = (frozen / temperature).logsumexp(-1, keepdim=True)
    # both halves less log w_0 and the frozen model's normaliser, or less log w_1 where that is larger
    second = (adapter / temperature).log_softmax(-1) + scale + lead.clamp(max=0)
    return torch.cat([frozen - temperature * lead.clamp(min=0), temperature * second], dim=-1)


def score_sources(source: Tensor, gate: Tensor, frozen: Tensor, adapter: Tensor) -> Tensor:
    """Log-probability [...] of choices: log w_z + log p_z(token), and log(w_0 p_0 + w_1 p_1) of an unknown source.

    Args:
        source: [...] 0 for the frozen model, 1 for the adapter, 2 for an unknown source.
        gate: [..., 2] log w.
        frozen, adapter: [...] log p_0 and log p_1 of the token.
    """
    first, second = gate[..., 0] + frozen, gate[..., 1] + adapter
    return torch.where(source == 0, first, torch.where(source == 1, second, torch.logaddexp(first, second)))


class SourceNetworks(nn.Module):
    """Adapter, gate and critic on the frozen model's states [..., D], each a perceptron with one hidden layer.

    Their last layers are 0 at the start: the adapter is then the frozen model, the gate takes it with probability
    `adapter_share`, and the critic predicts 0.

    Args:
        width: D.
        hidden: width of the hidden layers.
        adapter_share: w_1 of every token at the start.
    """

    def __init__(self, width: int, hidden: int, adapter_share: float):
        super().__init__()
        self.adapter, self.gate, self.critic = (build_perceptron(width, hidden, outputs) for outputs in (width, 2, 1))
        with torch.no_grad():
            self.gate[2].bias.copy_(torch.tensor([1 - adapter_share, adapter_share]).log())


class SelectiveTokenPolicy(FrozenModelPolicy):
    """Text policy of two sources of tokens, a frozen language model and an adapter, and a gate that chooses for each.

    `forward` returns the log-probs of source and token together, their entropy H(w) + sum_z w_z H(p_z), and `values`
    [N, T] of the critic. Sampling counts `adapter_tokens`. With `decode: argmax` the most likely pair of source and
    token is taken.

    Args:
        path: of a language model with its tokenizer, or of a folder that `save_pretrained` wrote.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        hidden: width of the hidden layers of adapter, gate and critic.
        adapter_share: probability at the start with which the gate takes the adapter.
        options: further arguments of `TextPolicy`, such as `dtype` or `template_arguments`.
    """

    vocabulary = 1 << 62  # until it is built, when every id is its own token

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        hidden: int = 512,
        adapter_share: float = 0.5,
        **options: Any,
    ):
        check_at_least(1, "policy", hidden=hidden)
        check_interval("policy", "(0, 1)", adapter_share=adapter_share)
        build = partial(SourceNetworks, hidden=hidden, adapter_share=adapter_share)
        super().__init__(path, config, build, **options)
        self.vocabulary = self.model.get_output_embeddings().weight.shape[0]

    def check_sampling(self, sampling: Sampling) -> None:
        super().check_sampling(sampling)
        self.refuse_sampling({"annealing": sampling.annealing is not None})

    # ---------------------------------------------------------------- ids of choices

    def split(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Split choices into their sources and their tokens."""
        return ids // self.vocabulary, ids % self.vocabulary

    def _tokens(self, ids: Sequence[int]) -> list[int]:
        return [int(i) % self.vocabulary for i in ids]

    def extend(self, observation: Observation, ids: Tensor) -> Observation:
        return super().extend(observation, ids % self.vocabulary)

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(self._tokens(ids))

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        return super().token_texts(self._tokens(ids))

    def turn_text(self, ids: Sequence[int]) -> str:
        return super().turn_text(self._tokens(ids))

    def stop_condition(self, strings: Sequence[str]) -> Callable[[Tensor], Tensor]:
        stops = super().stop_condition(strings)
        return lambda ids: stops(ids % self.vocabulary)

    def encode_demonstration(self, raw: Mapping[str, Any], output: str) -> Tensor:
        return super().encode_demonstration(raw, output) + 2 * self.vocabulary

    def encode_tool_results(self, *arguments: Any) -> list[int]:
        *others, last_id = arguments
        return super().encode_tool_results(*others, last_id % self.vocabulary)

    # ---------------------------------------------------------------- sampling and scoring

    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        if not self.is_built:
            return super().act_groups(observation, owner, sampling, noise)
        self.check_sampling(sampling)
        with self.mix(sampling.temperature):
            action = super().act_groups(observation, owner, sampling, noise)
        source, _ = self.split(action.action)
        action.counts = {"adapter_tokens": float((source[action.action_mask] == 1).sum())}
        return action

    @contextmanager
    def mix(self, temperature: float) -> Iterator[None]:
        """Let the model read the tokens of choices, and return the logits [..., 2 V] of source and token together."""

        def read_tokens(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (inputs[0] % self.vocabulary, *inputs[1:])

        def compute(states: Tensor, logits: Tensor) -> Tensor:
            return concatenate_sources(logits, self._adapt(states), self.networks.gate(states), temperature)

        hook = self.model.get_input_embeddings().register_forward_pre_hook(read_tokens)
        try:
            with self.replace_logits(compute):
                yield
        finally:
            hook.remove()

    def _adapt(self, states: Tensor) -> Tensor:
        """Logits [..., V] of the adapter."""
        return self.read_out(states + self.networks.adapter(states))

    def forward(self, batch: Batch) -> PolicyOutput:
        if not self.is_built:
            return super().forward(batch)
        source, token = self.split(batch["action"])  # [N, T] each
        frozen, states = self.score_frozen(batch.with_columns(action=token))  # states [N, T, D]
        gate = self.networks.gate(states).float().log_softmax(-1)  # [N, T, 2]
        adapted, adapted_entropy = logprob_entropy(self._adapt(states), token, batch["temperature"])
        logprobs = score_sources(source, gate, frozen.logprobs, adapted)
        entropies = torch.stack([frozen.entropy, adapted_entropy], dim=-1)  # [N, T, 2]
        entropy = (gate.exp() * (entropies - gate)).sum(-1)
        values = self.networks.critic(states).squeeze(-1).float()
        inside = self.inside(batch)
        return PolicyOutput(*(torch.where(inside, each, 0.0) for each in (logprobs, entropy, values)))
