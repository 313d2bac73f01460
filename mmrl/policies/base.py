"""Interface of policies: sample actions, and score stored actions."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch, Ragged, concatenate_columns, pad_stack
from mmrl.core.rng import Noise
from mmrl.core.types import Ended, Observation, PolicyOutput, Sampling
from mmrl.distributed.sequence_group import SequenceGroup


@dataclass
class Action:
    """Sampled actions of a policy in N contexts. Choices beyond a row's length have action_mask False."""

    action: Tensor  # [N, T] ids, or [N, T, A] reals
    behavior_logprobs: Tensor | None  # [N, T] nats; None only where `act_batch` leaves them to `score_batch`
    action_mask: Tensor  # [N, T] bool
    output: list[Any]  # N decoded actions: strings, or float arrays for a simulator
    values: Tensor | None = None  # [N] or [N, T]
    ended: list[Ended] | None = None  # N times "done" or "length"; None means all "done"
    extra: Mapping[str, Tensor | Ragged] = field(default_factory=dict)  # further columns, as in mmrl.core.columns
    cached_features: dict[str, Any] = field(default_factory=dict)  # [N, ...], stored in place of `cached_inputs`
    seconds: dict[str, float] = field(default_factory=dict)  # time by phase
    counts: dict[str, float] = field(default_factory=dict)  # events by metric name, such as malformed outputs


class Policy(nn.Module, ABC):
    """Base class of policies: `act` samples actions, `forward` scores stored ones, both by the same distribution code.

    A policy with a frozen part may return that part's features in `Action.cached_features`: they replace the inputs
    named in `cached_inputs` in the stored observation, and learning does not run the frozen part again.
    """

    cached_inputs: frozenset[str] = frozenset()  # keys of the observation that `Action.cached_features` replace
    chunk: int | None = None  # H, control steps per decision, where an action is [H, A]; None where it is [A] or a text
    optional: tuple[str, ...] = ("value_head",)  # modules that a checkpoint may lack, or have in excess
    capturable: Literal["decode_steps", "contexts"] | None = None  # the part of acting that `mmrl.capture` can replay
    captured: Any = None  # replacement of that part while acting, from `mmrl.capture`; None for the network itself
    not_trainable: str | None = None  # why `mmrl fit` must refuse the policy; None where it can be trained
    pads_left: bool = False  # whether `collate` pads tokens at the start of a row
    scales_images: bool = False  # whether images of every size are brought to that of the network
    takes_padding: bool = True  # whether rows of different lengths may stand in one batch
    one_pass: bool = False  # whether `forward` must call the network exactly once, as sharded weights require
    leaves_weights_out: bool = False  # whether batches leave out weights, besides `optional_modules`
    reserved_texts: tuple[str, ...] = ()  # tokens that stand for other inputs, such as images, and may be in no text
    opened_tag: str = ""  # a tag such as <think> with which the chat template opens every turn of the policy
    divides_sequences: bool = False  # whether processes can divide the tokens of its rows (`SequenceGroup.divide`)
    chooses_tokens: bool = True  # whether its choices are tokens of the vocabulary that it reads
    learns_from_rows: bool = True  # whether what it samples is learned from; False in held-out evaluation

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        """Return the extra columns that `act` writes, known from the configuration alone."""
        return frozenset()

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        """Return `forward`'s outputs beyond log-probs and entropy ("values", ...), from the configuration alone."""
        return frozenset()

    @classmethod
    def refuse_settings(cls, init_args: Mapping[str, Any]) -> None:
        """Raise ValueError if settings do not fit the architecture, known from the configuration alone."""

    @classmethod
    def refuse_division(cls, init_args: Mapping[str, Any], processes: int) -> None:
        """Raise ValueError if so many processes cannot divide its sequences, known from the configuration alone."""
        refused = f"strategy.sequence_parallel={processes} divides the tokens of text policies, not of {cls.__name__}"
        raise ValueError(f"{refused}; use strategy=ddp or strategy=fsdp2 without it")

    def measure_division(self, group: SequenceGroup) -> None:
        """Raise ValueError if a group that divides its sequences would compute something else. Collective."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def context_length(self) -> int | None:
        """Maximum number of tokens of prompt and completion together; None without a limit."""
        return None

    @property
    def token_characters(self) -> int:
        """Characters of the longest token; only for policies with a `context_length`."""
        raise NotImplementedError(f"{type(self).__name__} reads no tokens of text")

    @abstractmethod
    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """Convert one raw observation to tensors without a batch axis. A missing input is refused by name."""

    def check_batch(self, observations: Sequence[Observation]) -> None:
        """Refuse observations that cannot stand in one batch."""

    def observation_names(self) -> tuple[str, ...]:
        """Return the names of the raw observations that `encode` reads; empty where they are not known in advance."""
        return ()

    def scaled_images(self) -> frozenset[str]:
        """Return the names of raw images that the policy's processor brings to a size of its own."""
        return frozenset()

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """Refuse a simulator whose observations or actions do not fit; called before the first step in it."""

    def check_sampling(self, sampling: Sampling) -> None:
        """Refuse a decode that this policy does not support; called before the first step."""
        if sampling.annealing is not None:
            raise ValueError(
                f"sampling.annealing is for the tokens of text, and {type(self).__name__} samples none; set it to null"
            )
        if sampling.guide is not None:
            raise ValueError(
                f"sampling.regex and sampling.json_schema are for text, and {type(self).__name__} writes none; set "
                "them to null"
            )

    def extend(self, observation: Observation, ids: Tensor) -> Observation:
        """Append ids [P] to an encoded observation: the context of the choices that follow."""
        raise NotImplementedError(f"{type(self).__name__} chooses once per observation, which cannot be extended")

    def tokenize(self, text: str) -> Tensor:
        """Tokenize text that is not sampled to ids [P]: a tool's result, a hint, a follow-up message."""
        raise NotImplementedError(f"{type(self).__name__} reads no text between its choices; choose a text policy")

    def decode(self, ids: Sequence[int]) -> str:
        """Decode sampled ids to text."""
        raise NotImplementedError(f"{type(self).__name__} writes no text; choose a text policy")

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token, special tokens included; empty where the policy reads no text."""
        return []

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor] | None:
        """Encode and collate the raw observations [n, ...] of n environments; None where each is encoded alone.

        Only for policies that make the same number of choices in every context.
        """
        return None

    def act_batch(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        """Like `act`, on the result of `encode_batch`; it may leave log-probs and values to `score_batch`."""
        return self.act(observation, sampling, noise)

    def score_batch(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the columns "behavior_logprobs" and "values" that `act_batch` left out, for many decisions.

        Args:
            columns: "temperature" [N], "obs.<name>" as `encode_batch` gave them, "action" and what was drawn with it.
        """
        return {}

    @abstractmethod
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        """Sample actions in N collated contexts. No gradient; row i draws from noise row i only."""

    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        """Sample groups of actions: action r of R in context owner[r] of N; owner [R] may repeat a context.

        Equal to acting in the repeated contexts. Policies with costly contexts override it and encode each context
        once.
        """
        return self.act({name: column[owner] for name, column in observation.items()}, sampling, noise)

    def predict_values(self, observation: Mapping[str, Any]) -> Tensor | None:
        """Predict the values [N] of N collated contexts, without gradient; None without a value function.

        These are the values that `act` returns; policies that can compute them without an action override it.
        """
        rows = len(next(iter(observation.values())))
        return self.act(observation, Sampling(), Noise([0] * rows)).values

    @abstractmethod
    def forward(self, batch: Batch) -> PolicyOutput:
        """Score the stored actions of a batch, with gradient. The only entry for training."""

    def count_rows(self, batch: Batch, total: Callable[[Tensor], Tensor]) -> None:
        """Note the rows of an iteration for running statistics, which policies without such ignore. Collective.

        Args:
            batch: this rank's rows.
            total: sums a tensor over all ranks.
        """

    def include_rows(self) -> None:
        """Let running statistics include the rows that were noted; called before the next rows are sampled."""

    def measure_network(self) -> None:
        """Measure once what needs a call of the network; called when sharded weights are gathered."""

    def optional_modules(self) -> list[nn.Module]:
        """Return modules that `forward` leaves out in batches without their input, such as the image encoder."""
        return []

    def cache_features(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Compute `Action.cached_features` of N collated contexts; empty where nothing is frozen. No gradient."""
        return {}

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Encode a demonstrated `output` as choices [T]: the inverse of decoding."""
        raise NotImplementedError(f"{type(self).__name__} cannot turn a demonstration into choices")

    def write_turn(self, raw: Mapping[str, Any], message: str) -> str:
        """Write a demonstrated message as the policy would; its content alone where there is no chat template."""
        return str(message)

    def encode_conversation(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode a whole conversation: its ids [L], and which of them the assistant writes [L] bool.

        Args:
            messages: the last one is the assistant's.
            tools: schemas that the chat template shows.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no conversations; choose a text policy")

    def template_shows_tools(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a chat template writes the schemas of tools into the prompt; policies without text have none."""
        raise NotImplementedError(f"{type(self).__name__} has no chat template for tools; choose a text policy")

    def template_shows_calls(self, calls: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a chat template writes the assistant's calls of tools, as `template_shows_tools`."""
        raise NotImplementedError(f"{type(self).__name__} has no chat template for calls; choose a text policy")

    def contract(self) -> dict[str, Any]:
        """Return how the policy reads observations and writes actions; all uses of a checkpoint must agree on it."""
        return {}

    def read_training_simulator(self) -> Mapping[str, Any]:
        """Return the contract of the simulator of its training; empty where its checkpoint's folder has it."""
        return {}

    def canary(self) -> Mapping[str, Any]:
        """Return a raw observation on which an engine with a copy of the weights is compared with the policy."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot be sampled by engine=vllm, which serves text and vision-language policies; "
            "use engine=local"
        )

    def collate(self, observations: Sequence[Observation]) -> Mapping[str, Tensor | Ragged]:
        """Collate rows to a batch: equal shapes are stacked, others padded at the end."""
        return {name: pad_stack([torch.as_tensor(row[name]) for row in observations]) for name in observations[0]}

    def concatenate(self, parts: Sequence[Mapping[str, Tensor | Ragged]]) -> Mapping[str, Tensor | Ragged]:
        """Concatenate collated observations; rows of other lengths are padded with 0 where `collate` pads."""
        out = {}
        for name in dict.fromkeys(name for part in parts for name in part):
            like = next(part[name] for part in parts if name in part)
            columns = [part[name] if name in part else _no_items(part, like) for part in parts]
            out[name] = concatenate_columns(columns, left=self.pads_left)
        return out

    @abstractmethod
    def save_pretrained(self, folder: str | Path) -> None:
        """Save the policy in a folder, from which `path=folder` loads it."""


def _no_items(part: Mapping[str, Tensor | Ragged], like: Tensor | Ragged) -> Ragged:
    """Return a ragged column without items for the rows of a part, such as images where no row has one."""
    if not isinstance(like, Ragged):
        raise ValueError(f"observations of one batch differ in their columns, one has {sorted(part)} alone")
    rows = len(next(iter(part.values())))
    return Ragged(like.items[:0], torch.zeros(1, dtype=torch.long), torch.zeros(rows, dtype=torch.long))


def copy_policy(policy: Policy) -> Policy:
    """Copy a policy; layers that are not trained, such as those below adapters, are shared with the copy."""
    shared = [*filter(_is_frozen_layer, policy.modules()), *(p for p in policy.parameters() if not p.requires_grad)]
    return copy.deepcopy(policy, {id(part): part for part in shared})


def _is_frozen_layer(module: nn.Module) -> bool:
    """Whether a module's state is weights that are not trained and nothing else; buffers may be running statistics."""
    weights = list(module.parameters())
    alone = next(module.children(), None) is None and next(module.buffers(), None) is None
    return alone and bool(weights) and not any(weight.requires_grad for weight in weights)


def require_inputs(raw: Mapping[str, Any], names: Sequence[str], policy: Policy) -> None:
    """Refuse a raw observation that lacks what the policy's processor reads."""
    missing = [name for name in names if name not in raw]
    if missing:
        renamed = hasattr(policy, "processor")
        remedy = f", or name those of another name: policy.processor.names={{THEIR_NAME: {missing[0]}}}"
        raise ValueError(
            f"{type(policy).__name__} needs observation {missing}, but the task or sim gives {sorted(raw)}; "
            f"choose a policy that fits the task{remedy if renamed else ''}"
        )
