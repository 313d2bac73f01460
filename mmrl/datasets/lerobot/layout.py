"""File names and column names of LeRobotDataset v3.0.

Source: huggingface/lerobot, codebase version v3.0. A file holds many episodes; meta/episodes lists the rows and the
seconds of each episode. mmrl adds meta/mmrl.json with the simulator's contract and the names of observations.
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
"""Columns of every dataset."""

OUTCOME: dict[str, Feature] = {
    "next.reward": Feature("float32", (1,)),
    "next.done": Feature("bool", (1,)),
    "next.truncated": Feature("bool", (1,)),
    "next.success": Feature("bool", (1,)),
}
"""Columns for reinforcement learning; other demonstration datasets may lack them."""

ACTION, EXECUTED, INTERVENTION = "action", "action.executed", "intervention"
STATE, ENVIRONMENT, IMAGES = "observation.state", "observation.environment_state", "observation.images."


def name_column(name: str, feature: Feature, names: tuple[str, ...]) -> str:
    """Column name of an observation; cameras keep their names, proprioception is stored as the state."""
    if feature.camera:
        return f"{IMAGES}{name}"
    if name == "proprio" and "state" not in names:
        return STATE
    return f"observation.{name}"


def describe_feature(feature: Feature) -> dict[str, Any]:
    """Convert a feature to its entry of meta/info.json."""
    names = list(feature.names) if feature.names else ["height", "width", "channels"] if feature.camera else None
    return {"dtype": feature.dtype, "shape": list(feature.shape), "names": names}


def read_feature(plain: dict[str, Any]) -> Feature:
    """Parse a feature of meta/info.json; shapes of images with channels first become [H, W, C]."""
    shape, names = tuple(plain["shape"]), plain.get("names")
    flat = tuple(str(n) for n in names) if isinstance(names, list) else None
    if isinstance(names, dict):  # {"motors": [...]}
        flat = tuple(str(n) for group in names.values() if isinstance(group, list) for n in group)
    feature = Feature(plain["dtype"], shape, flat or None)
    if feature.camera and len(shape) == 3 and (flat or ("",))[0] in ("channel", "channels", "c"):
        return Feature(feature.dtype, (*shape[1:], shape[0]), None)
    return feature


def next_file(chunk: int, file: int) -> tuple[int, int]:
    """Return the chunk and file that follow (chunk, file)."""
    return (chunk + 1, 0) if file == FILES_PER_CHUNK - 1 else (chunk, file + 1)
