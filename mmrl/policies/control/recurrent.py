"""Recurrent actor-critic: an LSTM or GRU between the observation and the layers of actor and critic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.policies import policy_folder
from mmrl.policies.base import Action
from mmrl.policies.control.encoder import perceptron
from mmrl.policies.control.policy import ACTIVATIONS, ControlPolicy

MEMORY = "memory"
"""Name of the observation that holds the memory, which `mmrl.rollouts.env.memory` gives back."""
_RECURRENT_OPTIONS = ("recurrence", "memory_size")
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def find_sequences(
    episode: Tensor,  # [N]
    step: Tensor,  # [N]
) -> Tensor:  # [S, L]
    """Find the row numbers of S sequences of at most L rows, -1 behind their ends.

    A sequence is the rows of one episode whose steps follow each other; rows may stand in any order.
    """
    order = torch.from_numpy(np.lexsort((step.cpu().numpy(), episode.cpu().numpy())))
    episodes, steps = episode.cpu()[order], step.cpu()[order]
    starts = torch.ones(len(order), dtype=torch.bool)
    starts[1:] = (episodes[1:] != episodes[:-1]) | (steps[1:] != steps[:-1] + 1)
    number = starts.long().cumsum(0) - 1
    first = starts.nonzero()[:, 0]
    column = torch.arange(len(order)) - first[number]
    index = torch.full((len(first), int(column.max()) + 1), -1)
    index[number, column] = order
    return index.to(episode.device)


class RecurrentPolicy(ControlPolicy):
    """Actor-critic with a memory: encoder, LSTM or GRU, then one multilayer perceptron each for actor and critic.

    The memory is an observation: hidden and cell state of the last decision, zero at the start of an episode. `act`
    gives an action with the memory that follows it, and `mmrl.rollouts.env.recurrent` brings it to the next decision.
    `forward` unrolls the sequences of a batch, each from the memory that its first row was sampled with, so that
    gradients go through time; `mmrl.learners.sequences` keeps sequences whole.

    Args:
        observation_dims: length of the state vector; None without one.
        actions: as in `ControlPolicy`.
        kind: distribution of the action.
        recurrence: cell of the memory.
        memory_size: width of the cell's output; an LSTM remembers twice as many numbers.
        hidden: widths of the hidden layers after the memory, of actor and critic alike; at least one.
        activation: between the layers.
        low: smallest value that the simulator is given; the stored action is not clipped. Gaussian only.
        high: largest value that the simulator is given.
        log_std: initial logarithm of the standard deviation. Gaussian only.
        state_dependent_std: whether the standard deviation is a function of the state. Gaussian only.
        image_size: of the observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        image_features: width of the image features.
        normalize_observations: bring the state vector to mean 0 and variance 1, with running statistics.
        action_mask: the observation "action_mask" says which actions are legal; others have probability 0.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    whole_sequences = False  # whether a learner gives `forward` the sequences as they were played

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | list[int] | None = None,
        kind: Literal["categorical", "multi_categorical", "gaussian"] = "categorical",
        recurrence: Literal["lstm", "gru"] = "lstm",
        memory_size: int = 64,
        hidden: Sequence[int] = (64,),
        activation: Literal["tanh", "relu", "silu"] = "tanh",
        low: float | list[float] = -1.0,
        high: float | list[float] = 1.0,
        log_std: float = 0.0,
        state_dependent_std: bool = False,
        image_size: int | list[int] | None = None,
        image_features: int = 50,
        normalize_observations: bool = False,
        action_mask: bool = False,
        path: str | None = None,
    ):
        config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        super().__init__(**{name: value for name, value in config.items() if name not in _RECURRENT_OPTIONS})
        self.config = config
        kind_of_cell, size, widths = config["recurrence"], config["memory_size"], config["hidden"]
        if kind_of_cell not in CELLS or size < 1 or not widths:
            raise ValueError(
                f"policy.recurrence must be one of {sorted(CELLS)}, policy.memory_size at least 1 and policy.hidden "
                f"have a layer, got {kind_of_cell!r}, {size} and {list(widths)}"
            )
        self.parts = 2 if kind_of_cell == "lstm" else 1  # hidden state, and the cell state of an LSTM
        self.memory_dims = self.parts * size
        self.memory = CELLS[kind_of_cell](self.encoder.width, size, batch_first=True)
        # actor and critic read the memory's output in place of the encoder's
        layer = ACTIVATIONS[config["activation"]]
        self.actor, self.critic = perceptron([size, *widths], layer), perceptron([size, *widths], layer)
        self._orthogonal()
        policy_folder.load(path, self)

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        """Refuse a simulator with other observations or actions, or a rollout that does not bring the memory."""
        if getattr(action_space, "dims", None) != self.memory_dims:
            raise ValueError(
                "a policy with a memory needs a rollout that brings it to the next decision: set rollout=recurrent and "
                "evaluation=recurrent_control"
            )
        super().check_spaces(observation_space, action_space.action)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        if MEMORY not in raw:
            raise ValueError(
                f"{type(self).__name__} needs observation {MEMORY!r}, but there is {sorted(raw)}: set "
                "rollout=recurrent and evaluation=recurrent_control, which give it"
            )
        memory = torch.from_numpy(np.array(raw[MEMORY], dtype=np.float32))
        if memory.shape[1:] != (self.memory_dims,):
            shape = tuple(memory.shape[1:])
            raise ValueError(f"observation {MEMORY!r} has shape {shape}, the policy reads ({self.memory_dims},)")
        return {**super().encode_batch(raw), MEMORY: memory}

    def _state(self, memory: Tensor) -> Any:
        """Convert memories [S, M] to the cell's state."""
        parts = tuple(part.contiguous() for part in memory[None].chunk(self.parts, dim=-1))
        return parts if self.parts == 2 else parts[0]

    def _remember(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Take one step of the memory: its output [N, H] and what is remembered [N, M]."""
        features, state = self.memory(self.encoder(observation)[:, None], self._state(observation[MEMORY]))
        return features[:, 0], torch.cat(state if self.parts == 2 else (state,), dim=-1)[0]

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        features, memory = self._remember(observation)
        choices, action = self._sample(observation, features, sampling, noise)
        # what the simulator is given: the numbers of the action, then the memory
        numbers = np.asarray(action.output, dtype=np.float32).reshape(len(memory), -1)
        output = list(np.concatenate([numbers, memory.float().cpu().numpy()], axis=1))
        logprobs, values = choices.logprobs(action.action), self._values(features)
        return replace(action, output=output, behavior_logprobs=logprobs, values=values)

    def split_output(self, output: np.ndarray) -> tuple[Any, np.ndarray]:
        """Split the output of `act` in one context: the action alone, as `ControlPolicy` gives it, and the memory."""
        numbers, memory = output[: -self.memory_dims], output[-self.memory_dims :]
        if self.kind == "categorical":
            return int(numbers[0]), memory
        return numbers.astype(np.int64) if self.kind == "multi_categorical" else numbers, memory

    def act_batch(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        return self.act(observation, sampling, noise)

    def score_batch(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {}  # `act_batch` has scored its actions

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor:
        return self._values(self._remember(observation)[0])

    def forward(self, batch: Batch) -> PolicyOutput:
        if torch.is_grad_enabled() and not self.whole_sequences:
            raise ValueError("a policy with a memory learns from whole sequences: set learner=sequences")
        observation = batch.observation()
        features = self._unroll(observation, find_sequences(batch["episode"], batch["step"]))
        choices, extra = self._choices(observation, features, batch["temperature"]), {}
        if "support_ids" in batch:
            extra["full_logprobs"] = choices.logprobs(batch["action"])
            choices = choices.restrict(batch["support_ids"])
        return PolicyOutput(choices.logprobs(batch["action"]), choices.entropy(), self._values(features), extra)

    def _unroll(self, observation: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        """Compute the memory's outputs [N, H] of sequences `rows` [S, L], each from its first row's memory."""
        inside = rows >= 0
        encoded = self.encoder(observation)[rows.clamp(min=0)]  # [S, L, F]; what stands behind an end is not read
        outputs, _ = self.memory(encoded, self._state(observation[MEMORY][rows[:, 0]]))
        features = outputs.new_zeros(int(inside.sum()), outputs.shape[-1])
        return features.index_copy(0, rows[inside], outputs[inside])
