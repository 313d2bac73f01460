"""Scale a robot's vectors to a network's units, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["identity", "mean_std", "quantile", "min_max"]

STATISTICS: dict[Kind, tuple[str, str]] = {
    "mean_std": ("mean", "std"),
    "quantile": ("q01", "q99"),
    "min_max": ("min", "max"),
}
"""Which two statistics of a dataset each kind is made from."""


@dataclass(frozen=True)
class Scale:
    """Affine scale y = (x - offset) / width of the dimensions whose mask is True; others are unchanged.

    `mean_std` gives zero mean and unit variance; `quantile` and `min_max` take [q01, q99] or [min, max] to [-1, 1].
    Nothing is clipped, so `invert` is the exact inverse of `apply`.
    Source: Kim et al., "OpenVLA", arXiv 2406.09246, section 3.2 (quantiles instead of extremes).

    Args:
        kind: meaning of offset and width; identity changes nothing.
        offset: [D] in the robot's units.
        width: [D] in the robot's units, positive wherever the mask is True.
        mask: [D] False for unscaled dimensions, such as a gripper; empty scales all.
    """

    kind: Kind = "identity"
    offset: tuple[float, ...] = ()
    width: tuple[float, ...] = ()
    mask: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        for name in ("offset", "width", "mask"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.kind == "identity":
            if self.offset or self.width:
                raise ValueError("a scale with kind=identity has no offset and no width; name the kind")
            return
        if not self.mask:
            object.__setattr__(self, "mask", (True,) * len(self.offset))
        if not len(self.offset) == len(self.width) == len(self.mask) or not self.offset:
            raise ValueError(
                f"a scale needs one offset, width and mask per dimension, got {len(self.offset)}, {len(self.width)} "
                f"and {len(self.mask)}"
            )
        for dim, (offset, width, used) in enumerate(zip(self.offset, self.width, self.mask)):
            if used and not (np.isfinite([offset, width]).all() and width > 0):
                raise ValueError(
                    f"dimension {dim} cannot be scaled by {self.kind}: its width is {width} around {offset}; mask it "
                    f"(mask[{dim}]=false) or take it out of the data"
                )

    @classmethod
    def of(
        cls, kind: Kind, statistics: Mapping[str, Any], mask: Sequence[bool] | None = None, name: str = "vector"
    ) -> Scale:
        """Build from the statistics of a dataset: {"mean", "std", "min", "max", "q01", "q99"}, each [D].

        Args:
            kind: selects the statistics.
            statistics: by name.
            mask: [D] False for unscaled dimensions.
            name: of the vector, for messages. A constant dimension is refused for quantile and min_max unless it is
                masked; mean_std subtracts its mean.
        """
        if kind == "identity":
            return cls()
        missing = [part for part in STATISTICS[kind] if part not in statistics]
        if missing:
            raise ValueError(f"{name} has no statistics {missing}, which {kind} needs; it has {sorted(statistics)}")
        first, second = (np.asarray(statistics[part], np.float64).reshape(-1) for part in STATISTICS[kind])
        used = np.ones(len(first), bool) if mask is None else np.asarray(mask, bool)
        if used.shape != first.shape:
            raise ValueError(f"{name} has {len(first)} dimensions, the mask {len(used)}")
        if kind == "mean_std":
            offset, width = first, np.where(second > 0, second, 1.0)
        else:
            offset, width = (first + second) / 2, (second - first) / 2
            still = np.flatnonzero(used & ~(width > 0))
            if still.size:
                raise ValueError(
                    f"{name}: dimensions {still.tolist()} have zero range ({STATISTICS[kind][0]} = "
                    f"{STATISTICS[kind][1]}), so {kind} cannot scale them; mask them or use mean_std"
                )
        return cls(kind, tuple(offset.tolist()), tuple(width.tolist()), tuple(used.tolist()))

    def apply(self, values: Any) -> np.ndarray:
        """Convert to the network's units, float32 [..., D]."""
        if self.kind == "identity":
            return np.asarray(values, np.float32)
        offset, width = self._broadcast(values)
        return ((np.asarray(values, np.float64) - offset) / width).astype(np.float32)

    def invert(self, values: Any) -> np.ndarray:
        """Convert to the robot's units, float32 [..., D]."""
        if self.kind == "identity":
            return np.asarray(values, np.float32)
        offset, width = self._broadcast(values)
        return (np.asarray(values, np.float64) * width + offset).astype(np.float32)

    def _broadcast(self, values: Any) -> tuple[np.ndarray, np.ndarray]:
        dims = np.shape(values)[-1:]
        if dims != (len(self.offset),):
            raise ValueError(f"the scale is for {len(self.offset)} dimensions, the vector has shape {np.shape(values)}")
        mask = np.asarray(self.mask)
        return np.where(mask, self.offset, 0.0), np.where(mask, self.width, 1.0)
