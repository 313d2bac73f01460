"""What an observation of a client may hold: bounded by what the policy can read, before the policy gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.policies.base import Policy
from mmrl.policies.remote.wire import WireError

LONGEST_TEXT = 1000
"""Characters of a text for a policy without a limit of its own: that of the simulators' instructions."""
LARGEST_SIDE = 2048
"""Pixels a side of an image for a policy that scales images."""
MOST_NUMBERS = 1_000_000
"""Entries of an array that is no image."""
MOST_ENTRIES = 10_000
"""Entries of nested lists and maps, which policies may turn into a text."""
LARGEST_NUMBER = 1e12
"""Absolute value of a number, in whatever units; its square is finite in 32 bits."""
MOST_OBSERVATIONS = 64


@dataclass(frozen=True)
class ObservationLimits:
    """Largest texts, images and arrays of an observation.

    Args:
        characters: of a text.
        image_size: pixels a side that an image must have; None for any up to `LARGEST_SIDE`.
        scaled: names of images that the policy's processor brings to its size, whatever theirs is.
    """

    characters: int = LONGEST_TEXT
    image_size: int | None = None
    scaled: frozenset[str] = frozenset()

    @classmethod
    def of(cls, policy: Policy, contract: Mapping[str, Any]) -> ObservationLimits:
        """The limits of a policy that was trained in a simulator of this contract."""
        characters = LONGEST_TEXT
        if policy.context_length is not None:
            characters = min(policy.context_length * policy.token_characters, LONGEST_TEXT * policy.token_characters)
        size = contract.get("image_size")
        fixed = isinstance(size, int) and size > 0 and not policy.scales_images
        return cls(characters, size if fixed else None, policy.scaled_images())

    def check(self, observation: Mapping[str, Any]) -> None:
        """Refuse an observation with a part that is too large, or with numbers that are not finite.

        Raises:
            WireError: with the name of the part.
        """
        if len(observation) > MOST_OBSERVATIONS:
            raise WireError(f"a request has {len(observation)} observations; at most {MOST_OBSERVATIONS} are read")
        for name, value in observation.items():
            self._check_part(f"observation {name!r:.60}", name, value)

    def _check_part(self, title: str, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3:
            self._check_image(title, name, value)
        elif isinstance(value, np.ndarray | np.generic | float | int):
            _check_numbers(title, value)
        elif isinstance(value, str):
            self._check_text(title, len(value))
        elif isinstance(value, list | dict):
            self._check_nested(title, value)
        elif value is not None:
            raise WireError(f"{title} is a {type(value).__name__}; send numbers, texts, arrays, lists or maps")

    def _check_image(self, title: str, name: str, image: np.ndarray) -> None:
        sides = sorted(image.shape)[1:]  # channels may be first or last
        if self.image_size is not None and name not in self.scaled:
            square = (self.image_size, self.image_size)
            if image.shape[:2] != square and tuple(sides) != square:
                raise WireError(
                    f"{title} must be an image of {self.image_size} x {self.image_size} pixels, as in the training, "
                    f"got {image.shape}"
                )
        elif max(sides) > LARGEST_SIDE:
            raise WireError(
                f"{title} is an image of shape {image.shape}; at most {LARGEST_SIDE} pixels a side are read"
            )

    def _check_text(self, title: str, length: int) -> None:
        if length > self.characters:
            raise WireError(f"{title} has {length} characters; at most {self.characters} are read")

    def _check_nested(self, title: str, value: Any) -> None:
        """Walk through lists and maps, without recursion; the texts in them count as one."""
        entries, characters, waiting = 0, 0, [value]
        while waiting:
            each = waiting.pop()
            parts = [*each, *each.values()] if isinstance(each, dict) else each
            entries += len(parts) + sum(part.size for part in parts if isinstance(part, np.ndarray))
            if entries > MOST_ENTRIES:
                raise WireError(f"{title} has more than {MOST_ENTRIES} entries; send numbers as an array")
            for part in parts:
                if isinstance(part, list | dict):
                    waiting.append(part)
                elif isinstance(part, str):
                    characters += len(part)
                    self._check_text(title, characters)
                elif isinstance(part, np.ndarray | np.generic | float | int):
                    _check_numbers(title, part)
                elif part is not None:
                    self._check_part(title, "", part)


def _check_numbers(title: str, numbers: np.ndarray | np.generic | float | int) -> None:
    if isinstance(numbers, int):
        large, finite = abs(numbers) > LARGEST_NUMBER, True
    else:
        array = np.asarray(numbers)
        if array.size > MOST_NUMBERS:
            raise WireError(f"{title} is an array of shape {array.shape}; at most {MOST_NUMBERS} numbers are read")
        if array.dtype.kind not in "fiu":
            return
        finite = bool(np.isfinite(array).all())
        large = finite and bool((np.abs(array.astype(np.float64)) > LARGEST_NUMBER).any())
    if not finite:
        raise WireError(f"{title} has numbers that are not finite")
    if large:
        raise WireError(f"{title} has numbers beyond {LARGEST_NUMBER:g}, which no sensor has; look at its units")
