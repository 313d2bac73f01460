"""LDC's policy: states of a frozen language model steered by strengths, and a GRU that predicts the next strengths.

Learning to Generate Research Ideas with Dynamic Control, 2024, arXiv:2412.14626. With h the state before a token, U the
output layer, and c_d the strength of dimension d in [-1, 1]:

    h' = h + sum_d c_d W_d h;  p = softmax(U h')

A sentence begins at the first token and after each boundary token. With s_1, s_2, ... the states before the first
tokens of sentences, a GRU reads s_1 .. s_k and predicts the levels of the strengths of sentence k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch, Ragged
from mmrl.core.errors import check_at_least
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.ops.logprob import logprob_entropy
from mmrl.policies.base import Action
from mmrl.policies.text.frozen.policy import FrozenModelPolicy, build_perceptron

LEVELS = (-1.0, 0.0, 1.0)
"""Strengths that the controller can predict."""
ROW = 1 << 32  # positions of row n while it is sampled begin at n ROW


def steer(states: Tensor, strengths: Tensor, weights: Tensor) -> Tensor:
    """Steered states h' = h + sum_d c_d W_d h.

    Args:
        states: [..., D].
        strengths: [..., K] c.
        weights: [K, D, D] W.
    """
    return states + torch.einsum("...k,kij,...j->...i", strengths, weights, states)


def find_starts(tokens: Tensor, boundary: int) -> Tensor:
    """Which of the tokens [N, T] begin a sentence, [N, T] bool: the first one, and those after a boundary token."""
    return torch.cat([torch.ones_like(tokens[:, :1], dtype=torch.bool), tokens[:, :-1] == boundary], dim=1)


class SteeringNetworks(nn.Module):
    """Weights W_d, a critic on states and strengths, and the controller: a GRU over sentences with a layer of levels.

    W_d are 0 at the start, where no strength has an effect.

    Args:
        width: D.
        dimensions: K.
        hidden: width of the critic's hidden layer and of the GRU.
    """

    def __init__(self, width: int, dimensions: int, hidden: int):
        super().__init__()
        self.steering = nn.Parameter(torch.zeros(dimensions, width, width))
        self.critic = build_perceptron(width + dimensions, hidden, 1)
        self.sentences = nn.GRU(width, hidden, batch_first=True)
        self.levels = nn.Linear(hidden, dimensions * len(LEVELS))
        self.dimensions = dimensions

    def predict_levels(self, states: Tensor, starts: Tensor) -> Tensor:
        """Logits [N, T, K, L] of the levels of the sentences that begin at `starts`, 0 elsewhere.

        Args:
            states: [N, T, D] before each token.
            starts: [N, T] bool, of which the first is True.
        """
        # [N, T] number of the sentence of each token, and [N, S, D] the states of their first tokens
        number = starts.long().cumsum(1) - 1
        size = int(number.max()) + 1
        row, at = starts.nonzero(as_tuple=True)
        first = states.new_zeros(len(states), size, states.shape[-1]).index_put((row, number[row, at]), states[row, at])
        read, _ = self.sentences(first)
        logits = self.levels(read[row, number[row, at]]).unflatten(-1, (self.dimensions, len(LEVELS)))
        return logits.new_zeros(*starts.shape, *logits.shape[1:]).index_put((row, at), logits)


class SteeredPolicy(FrozenModelPolicy):
    """Text policy of a frozen language model whose last states are steered by the strengths of a prompt.

    Strengths are `strengths` of a raw observation, one for each dimension; a prompt without them is not steered, and
    its log-probs are those of the frozen model exactly. `forward` returns `values` [N, T] of the critic; while the
    controller is trained also its logits `strength_logits` [N, T, K, L], 0 where no sentence begins.

    Args:
        path: of a language model with its tokenizer, or of a folder that `save_pretrained` wrote.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        dimensions: number of strengths, K.
        boundary: text of the token that ends a sentence.
        hidden: width of the critic's hidden layer and of the controller's GRU.
        trains: dials, the weights W_d and the critic, or controller; the other one is frozen.
        options: further arguments of `TextPolicy`, such as `dtype` or `template_arguments`.
    """

    steers = False  # whether rows are sampled at present, whose numbers their positions have

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        dimensions: int = 3,
        boundary: str = " ",
        hidden: int = 128,
        trains: Literal["dials", "controller"] = "dials",
        **options: Any,
    ):
        check_at_least(1, "policy", dimensions=dimensions, hidden=hidden)
        if trains not in ("dials", "controller"):
            raise ValueError(f"policy.trains must be dials or controller, got {trains!r}")
        self.dimensions, self.trains = dimensions, trains
        super().__init__(path, config, partial(SteeringNetworks, dimensions=dimensions, hidden=hidden), **options)
        ids = self.tokenizer.encode(boundary, add_special_tokens=False)
        if len(ids) != 1:
            raise ValueError(
                f"policy.boundary={boundary!r} must be one token, and the tokenizer makes {len(ids)} of it"
            )
        self.boundary: int = ids[0]
        networks = self.networks
        frozen = (networks.sentences, networks.levels) if trains == "dials" else (networks.critic,)
        for part in frozen:
            part.requires_grad_(False)
        networks.steering.requires_grad_(trains == "dials")

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | ({"strength_logits"} if init_args.get("trains") == "controller" else set())

    # ---------------------------------------------------------------- observations

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """As TextPolicy, with `strengths` [K]."""
        if not self.is_built:
            return super().encode(raw)
        strengths = tuple(raw.get("strengths") or (0.0,) * self.dimensions)
        if len(strengths) != self.dimensions:
            raise ValueError(
                f"the prompt has {len(strengths)} strengths, and the policy steers {self.dimensions} dimensions; set "
                f"policy.dimensions={len(strengths)}"
            )
        encoded = super().encode({name: value for name, value in raw.items() if name != "strengths"})
        return {**encoded, "strengths": torch.tensor(strengths, dtype=torch.float32)}

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor | Ragged]:
        collated = super().collate(observations)
        if "strengths" in observations[0]:
            collated["strengths"] = torch.stack([each["strengths"] for each in observations])
        return collated

    def positions(self, ids: Tensor, attention: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        positions = super().positions(ids, attention, inputs)
        # rows leave a batch while it is sampled, and take their positions with them
        return positions + ROW * torch.arange(len(ids), device=ids.device)[:, None] if self.steers else positions

    # ---------------------------------------------------------------- sampling and scoring

    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        if not self.is_built:
            return super().act_groups(observation, owner, sampling, noise)
        self.check_sampling(sampling)
        strengths = observation["strengths"].to(self.device)  # [N, K]
        plain = {name: column for name, column in observation.items() if name != "strengths"}
        rows: list[Tensor] = []

        def read_rows(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            """Note the rows of the batch, and give the model positions from 0."""
            rows[:] = [kwargs["position_ids"][:, -1] // ROW]
            return args, {**kwargs, "position_ids": kwargs["position_ids"] % ROW}

        def compute(states: Tensor, logits: Tensor) -> Tensor:
            here = self.cast(strengths[rows[0]])[:, None]  # [n, 1, K]
            steered = self.read_out(steer(states, here, self.networks.steering))
            return torch.where((here == 0).all(-1, keepdim=True), logits, steered.to(logits.dtype))

        hook = self.model.register_forward_pre_hook(read_rows, with_kwargs=True)
        self.steers = True
        try:
            with self.replace_logits(compute):
                return super().act_groups(plain, owner, sampling, noise)
        finally:
            self.steers = False
            hook.remove()

    def forward(self, batch: Batch) -> PolicyOutput:
        if not self.is_built:
            return super().forward(batch)
        tokens = batch["action"]  # [N, T]
        frozen, states = self.score_frozen(_without_strengths(batch))  # states [N, T, D]
        strengths = self.cast(batch["obs.strengths"])[:, None].expand(-1, tokens.shape[1], -1)  # [N, T, K]
        steered = self.read_out(steer(states, strengths, self.networks.steering))
        scores = logprob_entropy(steered, tokens, batch["temperature"])
        # rows that are not steered have the frozen model's own numbers
        still = (strengths == 0).all(-1)
        logprobs, entropy = (torch.where(still, a, b) for a, b in zip((frozen.logprobs, frozen.entropy), scores))
        values = self.networks.critic(torch.cat([states, strengths], dim=-1)).squeeze(-1).float()
        inside = self.inside(batch)
        out = PolicyOutput(*(torch.where(inside, each, 0.0) for each in (logprobs, entropy, values)))
        if self.trains == "controller":
            out.extra["strength_logits"] = self.predict_levels(states, tokens, inside)
        return out

    def predict_levels(self, states: Tensor, tokens: Tensor, inside: Tensor) -> Tensor:
        """Logits [N, T, K, L] of the levels of the sentences that begin with one of the tokens, 0 elsewhere.

        Args:
            states: [N, T, D] before each token.
            tokens: [N, T].
            inside: [N, T] bool, tokens of the rows.
        """
        starts = find_starts(tokens, self.boundary) & inside
        starts[:, 0] = True
        return self.networks.predict_levels(states, starts).float()

    @torch.no_grad()
    def predict_strengths(self, observation: Mapping[str, Any], text: Tensor) -> Tensor:
        """Predict the strengths [K] of the sentence after a text, the most likely levels.

        Args:
            observation: an encoded prompt.
            text: [P] ids that were written so far, which end with a boundary, or none.
        """
        action = torch.cat([text, text.new_zeros(1)]).to(self.device)[None]  # the last one stands for the next token
        ones = torch.ones_like(action)
        batch = Batch(
            {f"obs.{name}": column.to(self.device) for name, column in self.collate([observation]).items()},
            action=action,
            action_mask=ones.bool(),
            temperature=torch.ones(1, device=self.device),
        )
        _, states = self.score_frozen(_without_strengths(batch))
        logits = self.predict_levels(states, action, ones.bool())[0, -1]  # [K, L]
        return torch.tensor(LEVELS)[logits.argmax(-1).cpu()]


def _without_strengths(batch: Batch) -> Batch:
    """The batch as the frozen model reads it."""
    return Batch({name: column for name, column in batch.items() if name != "obs.strengths"})
