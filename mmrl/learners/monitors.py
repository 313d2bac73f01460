"""Find callbacks that wait for a metric which is never measured."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any


def refuse_monitors(callbacks: Sequence[Any], names: Sequence[str], beginning: str = "") -> None:
    """Refuse a callback whose `monitor` is none of the metrics of a run.

    Such a callback never stops a run and never keeps a checkpoint, and Lightning says nothing, or late.

    Args:
        callbacks: of the trainer.
        names: metrics that were measured; without any nothing is known and nothing is refused.
        beginning: look only at metrics whose names begin with it; otherwise at all but held-out ones, which are not
            measured in every iteration.
    """
    for callback in callbacks if names else ():
        monitor = getattr(callback, "monitor", None)
        if not isinstance(monitor, str) or monitor in names or monitor.startswith("val/") != (beginning == "val/"):
            continue
        near = difflib.get_close_matches(monitor, names, n=3, cutoff=0.3)
        raise ValueError(
            f"trainer.callbacks ({type(callback).__name__}): monitor={monitor!r} is no metric of this run; "
            f"{'did you mean ' + ', '.join(near) + '?' if near else 'metrics.csv has their names'}"
        )
