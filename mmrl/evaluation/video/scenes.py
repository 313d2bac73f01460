"""Select episodes for the HTML report and encode short videos of them."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from mmrl.core.types import Episode
from mmrl.evaluation.video.clips import compose_clip, get_outcome, is_success
from mmrl.evaluation.video.recording import EpisodeVideos
from mmrl.evaluation.video.writer import CountingVideoWriter
from mmrl.samples.images import data_uri

PER_KIND = 3  # number of failures, and of successes
_MAX_FRAMES = 150  # frames of a video; longer episodes are subsampled


@dataclass(frozen=True)
class ReportVideo:
    """Short video of one episode in the HTML report.

    Args:
        video: MP4 as a data URI.
        poster: its last frame, JPEG as a data URI.
        instruction: of the episode.
        outcome: how the last policy's episode ended.
        kind: "error", "failure", "success" or "unknown".
        slot: of the initial state.
    """

    video: str
    poster: str
    instruction: str
    outcome: str
    kind: str
    slot: int


def classify_episode(episode: Episode, score_name: str | None) -> str:
    """Classify an episode as error, success, failure or unknown."""
    if episode.ended == "error":
        return "error"
    return {True: "success", False: "failure", None: "unknown"}[is_success(episode, score_name)]


def sort_failures_first(episodes: Sequence[Episode], score_name: str | None) -> list[Episode]:
    """Sort episodes: errors, failures, unknown ones, successes; each in the order of the split."""
    rank = {"error": 0, "failure": 1, "unknown": 2, "success": 3}
    return sorted(
        episodes, key=lambda episode: (rank[classify_episode(episode, score_name)], episode.group, episode.sample_index)
    )


def select_episodes(episodes: Sequence[Episode], score_name: str | None, each: int = PER_KIND) -> list[int]:
    """Select the slots of the first failures and the first successes in the order of the split."""
    slots: list[int] = []
    for outcomes in (("failure", "unknown"), ("success",)):
        slots += [
            e.group for e in sorted(episodes, key=lambda e: e.group) if classify_episode(e, score_name) in outcomes
        ][:each]
    return slots


def encode_videos(
    shown: Mapping[str, EpisodeVideos], slots: Sequence[int], score_name: str | None, writer: CountingVideoWriter
) -> list[ReportVideo]:
    """Encode a short video of each of these slots with all policies side by side; one that fails is left out."""
    policies = {title: part.select(slots) for title, part in shown.items()}
    # the outcome in the list is that of the last policy, such as the trained one
    last = list(policies.values())[-1]
    videos = []
    for i, episode in enumerate(last.episodes):
        frames = compose_clip(policies, i, score_name)
        # every step-th frame, at most _MAX_FRAMES, at half of real time
        step = -(-len(frames) // _MAX_FRAMES)
        poster = io.BytesIO()
        Image.fromarray(frames[-1]).save(poster, "JPEG", quality=80)
        with tempfile.TemporaryDirectory() as folder:
            file = writer.write(frames[::step], Path(folder) / "clip.mp4", last.fps / 2 / step)
            if file is None:
                continue
            video = data_uri(file.read_bytes(), "video/mp4")
        poster_uri = data_uri(poster.getvalue(), "image/jpeg")
        instruction = last.videos[i].instruction
        videos.append(
            ReportVideo(
                video,
                poster_uri,
                instruction,
                get_outcome(episode, score_name),
                classify_episode(episode, score_name),
                episode.group,
            )
        )
    return videos
