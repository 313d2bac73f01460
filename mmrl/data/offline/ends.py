"""Recorded ends of episodes: terminal states and time limits that look exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_REMEDY = "; if they are right, set data.checks_ends=false"


def check_ends(path: Path, ends: Sequence[tuple[int, str]]) -> None:
    """Refuse ends whose lengths say that terminal states and time limits were exchanged.

    A value function that takes a time limit for a terminal state learns that nothing follows it, without any error.
    A time limit cuts episodes at one length, and terminal states come at many.

    Args:
        path: of the dataset, for messages.
        ends: length of each episode in control steps, and why it ended: "done", "time" or "cut".

    Raises:
        ValueError: time limits at several lengths, and all terminal states at the greatest length of all; or every
            episode terminates at the same step, which a time limit does.
    """
    by_kind = {kind: [length for length, ended in ends if ended == kind] for kind in ("done", "time")}
    longest = max((length for length, _ in ends), default=0)
    always_longest = longest > 1 and len(by_kind["done"]) > 1 and set(by_kind["done"]) == {longest}
    if always_longest and len(set(by_kind["time"])) > 1:
        number = next(i for i, (length, ended) in enumerate(ends) if ended == "time" and length < longest)
        raise ValueError(
            f"{path}: terminal states and time limits look exchanged: a time limit ends episode {number} after row "
            f"{ends[number][0] - 1}, others at other rows, and all {len(by_kind['done'])} terminal states come at row "
            f"{longest - 1}, the last of the longest episodes; exchange `terminals` and `timeouts` "
            f"(LeRobot: next.done, next.truncated){_REMEDY}"
        )
    if always_longest and len(by_kind["done"]) == len(ends) > 2:
        raise ValueError(
            f"{path}: every one of {len(ends)} episodes, the first too, has a terminal state at row {longest - 1}, as "
            f"a time limit ends them; mark these rows in `timeouts` (LeRobot: next.truncated) and not in `terminals`"
            f"{_REMEDY}"
        )
