"""Compose the video of one policy, or of two side by side, on the first held-out initial states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mmrl.core.types import Episode
from mmrl.evaluation.video.encoder import VideoPanel, tile_panels
from mmrl.evaluation.video.recording import EpisodeVideos

HOLD = 15  # repeats of an episode's last frame


def compose_video(videos: Mapping[str, EpisodeVideos], score_name: str | None) -> list[np.ndarray]:
    """Compose the frames of a video: one initial state after the other, each with all policies side by side.

    The states are in the order of the split and are not selected by outcome.

    Args:
        videos: recorded episodes of each policy, by title; all of the same initial states.
        score_name: score of 0 or 1 that says whether an episode succeeded; None when there is none.
    """
    frames: list[np.ndarray] = []
    count = _count_states(videos)
    for i in range(count):
        frames += compose_clip(videos, i, score_name, f"{i + 1}/{count}  ")
    return frames


def compose_clip(
    videos: Mapping[str, EpisodeVideos], i: int, score_name: str | None, before: str = ""
) -> list[np.ndarray]:
    """Compose the frames of the i-th initial state, all policies side by side; `before` precedes the instruction."""
    _count_states(videos)
    instruction = next(iter(videos.values())).videos[i].instruction
    row = [
        VideoPanel(
            policy.videos[i].frames,
            title,
            get_outcome(policy.episodes[i], score_name),
            is_success(policy.episodes[i], score_name),
        )
        for title, policy in videos.items()
    ]
    frames = tile_panels(row, f"{before}{instruction}".strip())
    return frames + frames[-1:] * HOLD


def _count_states(videos: Mapping[str, EpisodeVideos]) -> int:
    """Return the number of recorded initial states; refuse policies with different ones."""
    first, *others = ([episode.prompt.key for episode in policy.episodes] for policy in videos.values())
    if any(other != first for other in others):
        raise ValueError("videos side by side must have the same initial states; record them with equal slots")
    return len(first)


def is_success(episode: Episode, score_name: str | None) -> bool | None:
    """Return whether the episode succeeded; None without a score, or after an error of the simulator."""
    if score_name is None or episode.ended == "error" or score_name not in episode.scores:
        return None
    return episode.scores[score_name] == 1


def get_outcome(episode: Episode, score_name: str | None) -> str:
    """Format how an episode ended: the simulator's event, else the return."""
    if episode.ended == "error":
        return "simulator error"
    if score_name is None:
        return f"return {episode.scores['return']:.1f}" if "return" in episode.scores else ""
    if is_success(episode, score_name):
        return score_name
    events = [name for name, value in episode.scores.items() if value == 1 and name not in (score_name, "return")]
    return events[0].replace("_", " ") if events else "out of time" if episode.ended == "time" else f"no {score_name}"
