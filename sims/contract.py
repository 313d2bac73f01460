"""Compare simulator contracts before data, checkpoints and results are combined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_same(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
    """Raise if two simulator contracts differ, and name every difference.

    Args:
        expected: the contract stored with the dataset, checkpoint or result.
        actual: the contract of the simulator at hand, `sim.contract()`.
    """
    lines = []
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            lines.append(f"  {name}: {expected[name]!r} was recorded, this simulator does not state it")
        elif name not in expected:
            lines.append(f"  {name}: not recorded, this simulator has {actual[name]!r}")
        elif _plain(expected[name]) != _plain(actual[name]):
            lines.append(f"  {name}: {expected[name]!r} was recorded, this simulator has {actual[name]!r}")
    if lines:
        raise ValueError(
            "the simulator differs from the one that this data, checkpoint or result was made with:\n"
            + "\n".join(lines)
            + "\nset the sim's options to the recorded values, or make the data again"
        )


def _plain(value: Any) -> Any:
    """Convert tuples to lists, so that a contract read back from JSON or YAML compares equal."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value
