"""Episodes of a simulator with several tasks, task by task."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.types import Episode


def task_of(episode: Episode) -> str:
    """The task's name: as its prompt says, else as the simulator reported, else the first part of its key."""
    said = episode.prompt.info.get("task", episode.info.get("task"))
    return str(said) if said is not None else episode.prompt.key.rsplit("/", 2)[0]


def by_task(episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
    """Every task's episodes, tasks by name, episodes in order."""
    names = sorted({task_of(episode) for episode in episodes})
    return {name: [episode for episode in episodes if task_of(episode) == name] for name in names}
