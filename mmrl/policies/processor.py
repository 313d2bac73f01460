"""Conversion of observations and actions between a robot and a policy's network, saved with the weights."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mmrl.files.contract import differences, flatten_entries
from mmrl.policies.vla.scale import Scale


@dataclass(frozen=True)
class ImageTransform:
    """Transform of a camera image for the network, in this order: layout, rotation, mirror, size.

    Args:
        layout: of the robot's images; the network reads [H, W, C].
        rotate: degrees, counter-clockwise.
        mirror: swap left and right.
        size: pixels per side, resampled with Lanczos; null does not resample.
    """

    layout: Literal["HWC", "CHW"] = "HWC"
    rotate: Literal[0, 90, 180, 270] = 0
    mirror: bool = False
    size: int | None = None

    def apply(self, image: Any) -> np.ndarray:
        """Transform a uint8 image of the given layout to uint8 [H, W, C]."""
        image = np.asarray(image)
        if image.dtype != np.uint8 or image.ndim != 3:
            raise ValueError(f"a camera image must be uint8 with three axes, got {image.dtype} {image.shape}")
        if self.layout == "CHW":
            image = image.transpose(1, 2, 0)
        image = np.rot90(image, self.rotate // 90)
        image = image[:, ::-1] if self.mirror else image
        if self.size is not None and image.shape[:2] != (self.size, self.size):
            image = np.asarray(Image.fromarray(image).resize((self.size, self.size), Image.Resampling.LANCZOS))
        return np.ascontiguousarray(image)


@dataclass(frozen=True)
class Gripper:
    """Conversion of the gripper dimension between network and robot: sign, range, and binary commands.

    Args:
        dim: gripper dimension of the action.
        closed: the robot's command that closes.
        open: the robot's command that opens.
        policy_closed: the network's value for closed.
        policy_open: the network's value for open.
        binary: round the command to the nearer of open and closed.
    """

    dim: int
    closed: float = -1.0
    open: float = 1.0
    policy_closed: float = -1.0
    policy_open: float = 1.0
    binary: bool = False

    def __post_init__(self) -> None:
        if self.closed == self.open or self.policy_closed == self.policy_open:
            raise ValueError("a gripper's open and closed values must differ, for the robot and for the policy")

    def to_robot(self, values: np.ndarray) -> np.ndarray:
        share = (values - self.policy_closed) / (self.policy_open - self.policy_closed)
        share = (share >= 0.5).astype(values.dtype) if self.binary else share
        return self.closed + share * (self.open - self.closed)

    def to_policy(self, values: np.ndarray) -> np.ndarray:
        share = (values - self.closed) / (self.open - self.closed)
        return self.policy_closed + share * (self.policy_open - self.policy_closed)


@dataclass(frozen=True)
class Processor:
    """Processor of a policy: renames and scales observations, transforms images, and scales actions and gripper.

    The default changes nothing. A policy applies `encode` to observations, `decode` to its actions and `encode_action`
    to demonstrated actions, and has the processor in its saved settings and in its contract.

    Args:
        names: the robot's or dataset's name of an observation -> the policy's name.
        images: transform of each image, by the policy's name.
        vectors: scale of each observed vector, by the policy's name.
        action: scale of the action [..., A].
        gripper: conversion of the gripper dimension, which must not be scaled; None without a gripper.
    """

    names: dict[str, str] = field(default_factory=dict)
    images: dict[str, ImageTransform] = field(default_factory=dict)
    vectors: dict[str, Scale] = field(default_factory=dict)
    action: Scale = field(default_factory=Scale)
    gripper: Gripper | None = None

    def __post_init__(self) -> None:
        if len(set(self.names.values())) != len(self.names):
            raise ValueError(f"processor.names gives two observations one name: {self.names}")
        mask = self.action.mask
        if self.gripper is not None and mask and (self.gripper.dim >= len(mask) or mask[self.gripper.dim]):
            raise ValueError(
                f"processor.gripper.dim={self.gripper.dim} is scaled as well; set processor.action.mask to false there"
            )

    def encode(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a raw observation to the policy's names, images and units; other entries are unchanged."""
        observation = {self.names.get(name, name): value for name, value in raw.items()}
        steps: dict[str, Any] = {**self.images, **self.vectors}
        for name, step in steps.items():
            if name not in observation:
                raise ValueError(
                    f"the policy's processor expects observation {name!r}, but it is given {sorted(raw)}; "
                    "set policy.processor.names to {given: expected}"
                )
            observation[name] = step.apply(observation[name])
        return observation

    def names_before(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the robot's or dataset's names of observations, given the policy's: the inverse of `names`."""
        inverse = {policy: robot for robot, policy in self.names.items()}
        return tuple(inverse.get(name, name) for name in names)

    def decode(self, action: Any) -> np.ndarray:
        """Convert the network's action to the robot's command, float32 [..., A]."""
        return self._hand(self.action.invert(action), "to_robot")

    def encode_action(self, action: Any) -> np.ndarray:
        """Convert the robot's command to the network's action, float32 [..., A]: the inverse of `decode`."""
        return self.action.apply(self._hand(np.asarray(action, np.float32), "to_policy"))

    def _hand(self, action: np.ndarray, way: str) -> np.ndarray:
        if self.gripper is None:
            return action
        action = action.copy()
        action[..., self.gripper.dim] = getattr(self.gripper, way)(action[..., self.gripper.dim])
        return action

    def contract(self) -> dict[str, Any]:
        """Convert to a flat dictionary of plain values, for example {"processor.action.kind": "quantile"}."""
        return flatten_entries(self.to_dict(), "processor.")

    def to_dict(self) -> dict[str, Any]:
        """Convert to a nested dictionary for JSON; `Processor.from_dict` reads it."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Processor:
        """Build a processor from the result of `to_dict`."""
        return cls(
            names=dict(plain.get("names", {})),
            images={name: ImageTransform(**arguments) for name, arguments in plain.get("images", {}).items()},
            vectors={name: Scale(**arguments) for name, arguments in plain.get("vectors", {}).items()},
            action=Scale(**plain.get("action", {})),
            gripper=Gripper(**plain["gripper"]) if plain.get("gripper") else None,
        )

    @classmethod
    def resolve(cls, given: Processor | None, saved: Mapping[str, Any] | None, where: str) -> Processor:
        """Return the given processor or the one saved with the weights; refuse two different ones.

        Args:
            given: processor of the configuration; None takes the saved one.
            saved: by `to_dict`, beside the weights; None when there are none yet, or they are older than this.
            where: path of the weights, for the message.
        """
        if saved is None:
            return given or cls()
        processor = cls.from_dict(saved)
        if given is not None and (lines := differences(processor.contract(), given.contract())):
            raise ValueError(
                f"{where} was trained with another policy.processor:\n  "
                + "\n  ".join(lines)
                + "\nleave policy.processor out to take the saved one"
            )
        return processor

    @classmethod
    def with_statistics(cls, given: Processor | None, statistics: Processor | None, where: str) -> Processor:
        """Return the scales of a checkpoint's statistics, with names, images and gripper of the given processor.

        The statistics of a published checkpoint say nothing about the robot's names of cameras, how its images are
        turned, and which way its gripper's numbers go. A vector without statistics keeps the given scale.

        Args:
            given: processor of the configuration; None takes the statistics alone.
            statistics: of the checkpoint; None if it has none, and then the given processor is taken.
            where: path of the weights, for the message.
        """
        if given is None or statistics is None:
            return given or statistics or cls()
        reference, scales = statistics._list_scales(), given._list_scales()
        both = reference.keys() & scales.keys()
        if lines := differences({name: reference[name] for name in both}, {name: scales[name] for name in both}):
            raise ValueError(
                f"{where} has statistics of its own, and policy.processor gives other ones:\n  "
                + "\n  ".join(lines)
                + "\nleave these scales out of policy.processor to take those of the checkpoint"
            )
        action = given.action if statistics.action.kind == "identity" else statistics.action
        return dataclasses.replace(given, vectors={**given.vectors, **statistics.vectors}, action=action)

    def _list_scales(self) -> dict[str, dict[str, Any]]:
        """List the scales that change something, as plain values by their name."""
        scales = {"processor.action": self.action, **{f"processor.vectors.{k}": v for k, v in self.vectors.items()}}
        return {name: dataclasses.asdict(scale) for name, scale in scales.items() if scale.kind != "identity"}


def check_chunk(output: Any, chunk: int, action_dims: int) -> np.ndarray:
    """Return a demonstrated chunk as float32 [H, A]; refuse another shape, and numbers that are not finite."""
    real = np.asarray(output, dtype=np.float32)
    if real.shape != (chunk, action_dims):
        raise ValueError(
            f"a demonstrated action has shape {real.shape}, but the policy's chunk and action_dims make "
            f"({chunk}, {action_dims})"
        )
    if not np.isfinite(real).all():
        step, number = np.argwhere(~np.isfinite(real))[0].tolist()
        raise ValueError(
            f"a demonstrated action is {real[step, number]} in control step {step}, dimension {number}: no "
            "choice stands for it; repair or drop the episode (`mmrl data inspect` lists such numbers)"
        )
    return real


def refuse_other(saved: Mapping[str, Any] | None, own: Mapping[str, Any], where: str) -> None:
    """Refuse weights of a policy with another contract.

    Args:
        saved: `Policy.contract()` saved with the weights; None if they have none.
        own: `Policy.contract()` of this policy.
        where: path of the weights.
    """
    if saved is not None and (lines := differences(saved, own)):
        raise ValueError(
            f"{where} belongs to a policy with another contract ({digest(saved)}, here {digest(own)}):\n  "
            + "\n  ".join(lines)
            + "\nset policy.processor and the policy's sizes to those of the training"
        )


def digest(contract: Mapping[str, Any]) -> str:
    """Hash a contract to twelve hexadecimal digits."""
    return hashlib.sha256(json.dumps(contract, sort_keys=True).encode()).hexdigest()[:12]


def read_image(name: str, value: Any) -> Tensor:
    """Return an image uint8 [H, W, 3].

    Raises:
        ValueError: the observation of this name is something else.
    """
    image = np.asarray(value)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"observation {name!r} must be uint8 [H, W, 3], got {image.dtype} {image.shape}")
    return torch.as_tensor(image)


def read_proprio(value: Any, dims: int) -> Tensor:
    """Return proprioception, float32 [dims].

    Raises:
        ValueError: it is no array of as many numbers.
    """
    try:
        proprio = torch.as_tensor(np.asarray(value, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise ValueError(f"observation 'proprio' must be {dims} numbers ({error})") from error
    if proprio.shape != (dims,):
        raise ValueError(f"observation 'proprio' has shape {tuple(proprio.shape)}, but policy.proprio_dims is {dims}")
    return proprio
