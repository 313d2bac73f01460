"""Where LeRobotDataset v3.0 keeps what, and under which names.

Source: huggingface/lerobot, codebase version v3.0: many episodes share a file; meta/episodes says which rows and which
seconds of which file belong to each. meta/mmrl.json is ours: the simulator's contract and the names of observations.
"""

from __future__ import annotations

from typing import Any

from mmrl.datasets.base import Feature

VERSION = "v3.0"
INFO, STATS, TASKS, OWN = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/mmrl.json"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
FILES_PER_CHUNK = 1000
DATA_MB, VIDEO_MB = 100, 200  # a file is closed at this size

INDEX: dict[str, Feature] = {
    "timestamp": Feature("float32", (1,)),
    "frame_index": Feature("int64", (1,)),
    "episode_index": Feature("int64", (1,)),
    "index": Feature("int64", (1,)),
    "task_index": Feature("int64", (1,)),
}
"""Columns that every dataset has."""

OUTCOME: dict[str, Feature] = {
    "next.reward": Feature("float32", (1,)),
    "next.done": Feature("bool", (1,)),
    "next.truncated": Feature("bool", (1,)),
    "next.success": Feature("bool", (1,)),
}
"""Columns that reinforcement learning needs; demonstrations of others may lack them."""

ACTION, EXECUTED = "action", "action.executed"
STATE, ENVIRONMENT, IMAGES = "observation.state", "observation.environment_state", "observation.images."


def key_of(name: str, feature: Feature, names: tuple[str, ...]) -> str:
    """The column of an observation: cameras by name, the proprioception as the state."""
    if feature.camera:
        return f"{IMAGES}{name}"
    if name == "proprio" and "state" not in names:
        return STATE
    return f"observation.{name}"


def describe_feature(feature: Feature) -> dict[str, Any]:
    """A feature as meta/info.json has it."""
    names = list(feature.names) if feature.names else ["height", "width", "channels"] if feature.camera else None
    return {"dtype": feature.dtype, "shape": list(feature.shape), "names": names}


def read_feature(plain: dict[str, Any]) -> Feature:
    """A feature of meta/info.json; images that are described channels first are made [H, W, C]."""
    shape, names = tuple(plain["shape"]), plain.get("names")
    flat = tuple(str(n) for n in names) if isinstance(names, list) else None
    if isinstance(names, dict):  # {"motors": [...]}
        flat = tuple(str(n) for group in names.values() if isinstance(group, list) for n in group)
    feature = Feature(plain["dtype"], shape, flat or None)
    if feature.camera and len(shape) == 3 and (flat or ("",))[0] in ("channel", "channels", "c"):
        return Feature(feature.dtype, (*shape[1:], shape[0]), None)
    return feature


def next_file(chunk: int, file: int) -> tuple[int, int]:
    """The place after (chunk, file)."""
    return (chunk + 1, 0) if file == FILES_PER_CHUNK - 1 else (chunk, file + 1)
