"""STG: a frozen language model and an adapter write each completion together; a gate chooses who writes a token.

Selective Token Generation for Few-shot Natural Language Generation, 2022, arXiv:2209.08206, and the released code
kakaobrain/stg. With h the frozen model's last state before a token:

    p_0 = softmax(U h)              the frozen model, U its output layer
    p_1 = softmax(U (h + f(h)))     the adapter f
    w   = softmax(g(h))             the gate g, of the two sources
    source z ~ w, token ~ p_z;  log pi(z, token) = log w_z + log p_z(token)

Adapter and gate learn by the policy gradient of this sum. Where the frozen model wrote the token, log p_0 has no
parameter that is trained, and only the gate gets a gradient. A stored choice is z V + token, of a vocabulary of V ids.
A token of a demonstration, whose source nobody knows, is 2 V + token: its probability is that of the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.ops.logprob import logprob_entropy
from mmrl.ops.masked import last_inside
from mmrl.policies.base import Action
from mmrl.policies.text.packing.prefix_sharing import is_sharded
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.weights import fill, read_weights

PARTS, FROZEN = "selective_tokens.safetensors", "frozen_model"
"""What a saved folder has: the weights of adapter, gate and critic, and the folder of the frozen language model."""
FIXED = ("lora", "quantization", "value_head", "statistics", "hidden_layers", "router_replay", "output_router_logits")
"""Arguments of `TextPolicy` that this policy does not have."""


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

    Their last layers are 0 at the start: the adapter is then the frozen model, the gate takes each with probability
    1/2, and the critic predicts 0.

    Args:
        width: D.
        hidden: width of the hidden layers.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.adapter, self.gate, self.critic = (build_perceptron(width, hidden, outputs) for outputs in (width, 2, 1))


def build_perceptron(width: int, hidden: int, outputs: int) -> nn.Sequential:
    """Build a perceptron with one hidden layer, which predicts 0 before training."""
    network = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    nn.init.zeros_(network[2].weight)
    nn.init.zeros_(network[2].bias)
    return network


class SelectiveTokenPolicy(TextPolicy):
    """Text policy of two sources of tokens, a frozen language model and an adapter, and a gate that chooses for each.

    `forward` returns the log-probs of source and token together, their entropy H(w) + sum_z w_z H(p_z), and `values`
    [N, T] of the critic. Sampling counts `adapter_tokens`. With `decode: argmax` the most likely pair of source and
    token is taken.

    Args:
        path: of a language model with its tokenizer, or of a folder that `save_pretrained` wrote.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        hidden: width of the hidden layers of adapter, gate and critic.
        options: further arguments of `TextPolicy`, such as `dtype` or `template_arguments`.
    """

    optional = ("value_head", "sources")
    capturable = None  # replayed decode steps have no states for adapter and gate
    # until the language model is built and compared with transformers it writes alone, and every id is its own token
    has_sources = False
    vocabulary = 1 << 62

    def __init__(
        self, path: str | None = None, config: dict[str, Any] | None = None, hidden: int = 512, **options: Any
    ):
        check_at_least(1, "policy", hidden=hidden)
        if wrong := sorted(name for name in FIXED if options.get(name)):
            raise ValueError(
                f"policy.{wrong[0]}={options[wrong[0]]}: SelectiveTokenPolicy freezes its language model and has its "
                "own critic; leave it out"
            )
        folder = None if path is None else Path(path)
        saved = folder is not None and (folder / PARTS).is_file()
        model_options = {name: value for name, value in options.items() if name not in FIXED}
        super().__init__(str(folder / FROZEN) if saved else path, config, hidden_layers=[1.0], **model_options)  # type: ignore[operator]
        self.path = path
        self.model.requires_grad_(False)
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        if self.device.type != "meta" and not self.output_layer.verify(self.model, self.text_ids()):
            raise ValueError(
                f"policy: SelectiveTokenPolicy reads the adapter's state with the output layer, and the logits of "
                f"{self.model.config.model_type} are not the outputs of that layer; choose another language model"
            )
        self.sources = SourceNetworks(self.hidden_size, hidden)
        if saved:
            fill(self.sources, read_weights(folder / PARTS, "save the policy there again"), str(folder / PARTS))  # type: ignore[operator]
        self.has_sources, self.vocabulary = True, vocabulary

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"values"}

    @classmethod
    def refuse_division(cls, init_args: Mapping[str, Any], processes: int) -> None:
        refused = f"strategy.sequence_parallel={processes} divides the tokens of a language model alone"
        raise ValueError(f"{refused}, and SelectiveTokenPolicy has an adapter on its states; leave it out")

    def canary(self) -> Mapping[str, Any]:
        if not self.has_sources:
            return super().canary()
        raise NotImplementedError(
            f"{type(self).__name__} writes with an adapter and a gate, and engine=vllm has none; use engine=local"
        )

    def check_sampling(self, sampling: Sampling) -> None:
        super().check_sampling(sampling)
        for name, is_set in (
            ("top_k, sampling.top_p and sampling.min_p", sampling.truncated),
            ("annealing", sampling.annealing is not None),
            ("regex and sampling.json_schema", sampling.guide is not None),
        ):
            if is_set:
                raise ValueError(
                    f"sampling.{name}: SelectiveTokenPolicy draws a source and its token together, for which these "
                    "have no meaning; leave them out"
                )

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

    def encode_conversation(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError(
            f"{type(self).__name__} cannot turn whole conversations into choices, since their sources are unknown; "
            "use single answers, rollout=demonstrations"
        )

    # ---------------------------------------------------------------- sampling and scoring

    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        if not self.has_sources:
            return super().act_groups(observation, owner, sampling, noise)
        self.check_sampling(sampling)
        with self._mix(sampling.temperature):
            action = super().act_groups(observation, owner, sampling, noise)
        source, _ = self.split(action.action)
        action.counts = {"adapter_tokens": float((source[action.action_mask] == 1).sum())}
        return action

    @contextmanager
    def _mix(self, temperature: float) -> Iterator[None]:
        """Let the model read the tokens of choices, and return the logits [..., 2 V] of source and token together."""

        def read_tokens(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (inputs[0] % self.vocabulary, *inputs[1:])

        def mix(_: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
            states = self._cast(inputs[0])
            gate, adapted = self.sources.gate(states), self._adapt(states)
            return concatenate_sources(self._mask_forbidden(logits), adapted, gate, temperature)

        hooks = [
            self.model.get_input_embeddings().register_forward_pre_hook(read_tokens),
            self.model.get_output_embeddings().register_forward_hook(mix),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _cast(self, states: Tensor) -> Tensor:
        """States [..., D] in the dtype of adapter, gate and critic."""
        return states.to(self.sources.gate[0].weight.dtype)

    def _adapt(self, states: Tensor) -> Tensor:
        """Logits [..., V] of the adapter."""
        layer = self.model.get_output_embeddings()
        if is_sharded(layer):
            raise ValueError("policy: SelectiveTokenPolicy needs its output layer whole; use strategy=ddp")
        adapted = (states + self.sources.adapter(states)).to(layer.weight.dtype)
        return self._mask_forbidden(layer.forward(adapted))  # without the hooks of `_mix`

    def forward(self, batch: Batch) -> PolicyOutput:
        if not self.has_sources:
            return super().forward(batch)
        source, token = self.split(batch["action"])  # [N, T] each
        with torch.no_grad():
            frozen = super().forward(batch.with_columns(action=token))
        states = self._cast(frozen.extra.pop("hidden_states")[:, :, -1])  # [N, T, D]
        gate = self.sources.gate(states).float().log_softmax(-1)  # [N, T, 2]
        adapted, adapted_entropy = logprob_entropy(self._adapt(states), token, batch["temperature"])
        # scores of choices after the last one that is scored are 0, as the frozen model's
        inside = torch.arange(token.shape[1], device=token.device) < last_inside(batch.score_mask)[:, None]
        logprobs = score_sources(source, gate, frozen.logprobs, adapted)
        entropies = torch.stack([frozen.entropy, adapted_entropy], dim=-1)  # [N, T, 2]
        entropy = (gate.exp() * (entropies - gate)).sum(-1)
        values = self.sources.critic(states).squeeze(-1).float()
        return PolicyOutput(*(torch.where(inside, each, 0.0) for each in (logprobs, entropy, values)))

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the frozen language model in a folder of its own, in transformers' format, and the other parts."""
        folder = Path(folder)
        super().save_pretrained(folder / FROZEN)
        (folder / FROZEN / "mmrl_policy.json").replace(folder / "mmrl_policy.json")
        save_file(self.sources.state_dict(), folder / PARTS)
