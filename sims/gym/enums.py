"""Compatibility of MuJoCo's enumerations with numpy integers, for packages written for older releases."""

from __future__ import annotations

import numpy as np


def mend_enums() -> None:
    """Make `mjtJoint.X == numpy.int32(x)` true again for equal numbers.

    From MuJoCo 3.12 on it is False, so that `model.jnt_type[i] in (mjtJoint.A, ...)` never holds: the Fetch, hand and
    kitchen environments of gymnasium-robotics fail on it. Does nothing where MuJoCo is missing or already compares so.
    """
    try:
        import mujoco
    except ImportError:
        return
    for kind in vars(mujoco).values():
        if isinstance(kind, type) and hasattr(kind, "__members__"):
            _mend(kind)


def _mend(kind: type) -> None:
    member = next(iter(kind.__members__.values()))  # type: ignore[attr-defined]
    if member == np.int32(int(member)):
        return
    plain = kind.__eq__

    def equal(self, other: object) -> bool:
        return int(self) == int(other) if isinstance(other, np.integer) else plain(self, other)  # type: ignore[call-arg]

    kind.__eq__ = equal  # type: ignore[assignment]  # the hash, that of the number, stays
