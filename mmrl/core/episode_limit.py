"""Say that episodes are long, and refuse those that do not end."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


def check_end(name: str, decision: int, playing: int, most: int, key: str = "rollout.max_decisions") -> None:
    """Say that episodes are long, and refuse those that do not end.

    Args:
        name: of the task or the simulator.
        decision: number of decisions that were played.
        playing: number of episodes that have not ended.
        most: decisions of an episode.
        key: of `most` in the configuration, or what else states it.
    """
    remedy = "limit it with sim.max_episode_steps=1000, or let the environment end it"
    if decision >= most:
        raise RuntimeError(f"{name}: an episode has not ended after {decision} decisions ({key}); {remedy}")
    if decision == max(most // 10, 1):
        log.warning("%s: %d episodes have not ended after %d decisions; %s", name, playing, decision, remedy)
