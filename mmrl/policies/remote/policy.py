"""Policy whose network is at a policy server, for evaluation in the simulators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.installation.optional_packages import require_packages
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.processor import Processor
from mmrl.policies.remote.connections import Connections
from mmrl.policies.remote.metadata import read_metadata
from mmrl.policies.remote.token import read_token
from mmrl.policies.remote.wire import PACKAGES, PROTOCOL, SAMPLING, SEED, pack, unpack

LARGEST_ACTION = 1e6
"""Absolute value of an action's number beyond which it is an error of the server, in whatever units."""


class RemotePolicy(Policy):
    """Send each observation to a policy server and play the actions that it answers: `mmrl serve`, or openpi's server.

    `mmrl serve` draws with the seeds and the decode of the evaluation, so its results are those of the same policy
    here. Another server chooses in its own way, whatever the evaluation's decode is.

    Args:
        url: ws://host:port, or wss:// behind a proxy with TLS.
        action_dims: A, numbers per control step that the simulator takes.
        chunk: H, control steps per decision: the first ones of an answer. None where an action is [A].
        names: our name of an observation -> the server's, as {image: observation/image}: only these are sent. Empty
            sends all under their own names.
        action_slice: [start, stop] of an answer's dimensions, where the server's are more than A.
        processor: conversion of observations before they are sent, and of the answer's actions; its names are those
            that `names` begins with.
        token_file: file with the server's token; None takes the environment variable MMRL_SERVE_TOKEN, if it is set.
        connections: most observations that are sent at once.
        timeout_s: longest wait for an answer, seconds.
        reconnect_s: how long a server that is not there is tried again, seconds.
    """

    packages = PACKAGES
    not_trainable = "its weights are at policy.url; train with another policy, evaluate with `mmrl evaluate`"

    def __init__(
        self,
        url: str,
        action_dims: int,
        chunk: int | None = None,
        names: dict[str, str] | None = None,
        action_slice: list[int] | None = None,
        processor: Processor | None = None,
        token_file: str | None = None,
        connections: int = 16,
        timeout_s: float = 60.0,
        reconnect_s: float = 60.0,
    ):
        super().__init__()
        require_packages(PACKAGES, "policy=remote")
        if not re.fullmatch(r"wss?://[^/\s]+\S*", url):
            raise ValueError(f"policy.url={url}: must be ws://HOST:PORT or wss://HOST:PORT")
        if action_slice is not None and (len(action_slice) != 2 or not 0 <= action_slice[0] < action_slice[1]):
            raise ValueError(f"policy.action_slice={action_slice}: must be [start, stop], as [0,{action_dims}]")
        if action_slice is not None and action_slice[1] - action_slice[0] != action_dims:
            raise ValueError(f"policy.action_slice={action_slice} has not policy.action_dims={action_dims} dimensions")
        if connections < 1 or timeout_s <= 0 or reconnect_s < 0:
            raise ValueError("policy.connections must be at least 1, timeout_s above 0 and reconnect_s at least 0")
        self.path = url  # for reports: where the weights are
        self.chunk, self.action_dims, self.names = chunk, action_dims, dict(names or {})
        self.action_slice = None if action_slice is None else slice(*action_slice)
        self.processor = processor or Processor()
        self.server = Connections(url, connections, read_token(token_file, "policy.token_file"), timeout_s, reconnect_s)
        self._checked = False

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """Encode the observation as the bytes of a message [L], since a batch holds tensors alone."""
        observation = self.processor.encode(raw)
        if self.names:
            require_inputs(observation, tuple(self.names), self)
            observation = {server_name: observation[name] for name, server_name in self.names.items()}
        try:
            message = pack({name: _to_plain(value) for name, value in observation.items()})
        except TypeError as error:
            raise ValueError(f"policy.url={self.path}: an observation cannot be sent: {error}") from error
        data = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        return {"message": data, "length": torch.tensor(len(message))}

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        """Ask the server for the actions in N contexts, several at once. Log-probs are not known and are zero."""
        metadata = self.server.connect()
        lengths = observation["length"].tolist()
        requests = [unpack(row[:n].numpy().tobytes()) for row, n in zip(observation["message"], lengths)]
        self._check(metadata, requests[0])
        if metadata.get("protocol") == PROTOCOL:
            settings = {name: value for name, value in asdict(sampling).items() if value is not None}
            requests = [
                {**request, SEED: int(seed), SAMPLING: settings} for request, seed in zip(requests, noise.seeds)
            ]
        outputs = [self._read(answer) for answer in self.server.ask([pack(request) for request in requests])]
        action = torch.from_numpy(np.stack(outputs)).view(len(outputs), -1, self.action_dims)
        shape = action.shape[:2]
        return Action(action, torch.zeros(shape), torch.ones(shape, dtype=torch.bool), outputs)

    def forward(self, batch: Batch) -> PolicyOutput:
        raise NotImplementedError(f"this policy cannot be trained: {self.not_trainable}")

    def save_pretrained(self, folder: str | Path) -> None:
        raise NotImplementedError(f"this policy cannot be saved: {self.not_trainable}")

    def contract(self) -> dict[str, Any]:
        """Return the conversions here, and the contract of the server's policy once it was connected."""
        entries = {**self.processor.contract(), "action.chunk": self.chunk, "action.dims": self.action_dims}
        contract = (self.server.metadata or {}).get("policy")
        return {**entries, "names": self.names} | ({"server": contract} if isinstance(contract, Mapping) else {})

    def read_training_simulator(self) -> Mapping[str, Any]:
        """Return what `mmrl serve` says about the simulator of the training; empty of another server."""
        metadata = self.server.connect()
        stated = metadata.get("simulator") if metadata.get("protocol") == PROTOCOL else None
        return stated if isinstance(stated, Mapping) else {}

    def _check(self, metadata: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        """Refuse a server that needs other observations or gives other actions, as far as its metadata says."""
        if self._checked:
            return
        stated, lines = read_metadata(metadata, f"policy.url={self.path}"), []
        if missing := sorted(set(stated.observations) - set(request)):
            lines.append(f"it needs observation {missing}, sent are {sorted(request)} (policy.names)")
        dims, chunk = stated.dims, stated.chunk
        if dims is not None and self.action_slice is None and dims != self.action_dims:
            lines.append(f"its actions have {dims} dimensions, here {self.action_dims} (policy.action_slice)")
        if chunk is not None and chunk < (self.chunk or 1):
            lines.append(f"it gives {chunk} control steps, here {self.chunk} are played (policy.chunk, sim.chunk)")
        if lines:
            raise ConfigError(f"policy.url={self.path} has a policy that does not fit: {'; '.join(lines)}")
        self._checked = True

    def _read(self, answer: Any) -> np.ndarray:
        """Read the actions [H, A], or [A] without chunks, of one answer."""
        actions = answer.get("actions") if isinstance(answer, Mapping) else None
        if not isinstance(actions, np.ndarray) or actions.ndim != 2:
            raise RuntimeError(f'policy.url={self.path}: the answer has no array "actions" of two axes')
        steps = self.chunk or 1
        part = actions[:steps, self.action_slice or slice(None)]
        if part.shape != (steps, self.action_dims):
            raise ConfigError(
                f"policy.url={self.path}: the answer's actions are {list(actions.shape)}, which does not give "
                f"{steps} control steps of {self.action_dims} numbers; set policy.action_slice or policy.chunk"
            )
        part = self.processor.decode(self._read_numbers(part))
        self._refuse_large(part)
        return part if self.chunk is not None else part[0]

    def _read_numbers(self, actions: np.ndarray) -> np.ndarray:
        """The actions as float32; refuse those that no robot has."""
        if actions.dtype.kind not in "fiu":
            raise ConfigError(f"policy.url={self.path}: the answer's actions are of type {actions.dtype}, not numbers")
        self._refuse_large(actions)
        return actions.astype(np.float32)

    def _refuse_large(self, actions: np.ndarray) -> None:
        if not np.isfinite(actions).all():
            raise ConfigError(f"policy.url={self.path}: the answer's actions are not finite")
        largest = float(np.abs(actions.astype(np.float64)).max(initial=0))
        if largest > LARGEST_ACTION:
            raise ConfigError(
                f"policy.url={self.path}: the answer's actions go up to {largest:g}, more than {LARGEST_ACTION:g}, "
                "which no simulator takes; look at the server's policy and units"
            )


def _to_plain(value: Any) -> Any:
    """Convert a tensor or a numpy text to what the wire format has."""
    if isinstance(value, Tensor):
        return value.cpu().numpy()
    return str(value) if isinstance(value, np.str_) else value
