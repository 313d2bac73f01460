"""Which episodes a reader looks at first, and short clips of them that fit into a page."""

from __future__ import annotations

import base64
import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from mmrl.evaluation.clips import clip, outcome, success
from mmrl.evaluation.film import Shown
from mmrl.evaluation.video import write_video
from mmrl.types import Episode

EACH = 3  # failures, and as many successes
_MOST_FRAMES = 150  # of a clip; longer episodes are shown in fewer pictures


@dataclass(frozen=True)
class Scene:
    """One clip for a page.

    Args:
        video: MP4 as a data URI.
        poster: its last picture, JPEG as a data URI.
        instruction: what was asked.
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


def kind(episode: Episode, score: str | None) -> str:
    """How an episode counts."""
    if episode.ended == "error":
        return "error"
    return {True: "success", False: "failure", None: "unknown"}[success(episode, score)]


def failures_first(episodes: Sequence[Episode], score: str | None) -> list[Episode]:
    """Errors, failures, what nothing is known of, successes; each in the order of the split."""
    rank = {"error": 0, "failure": 1, "unknown": 2, "success": 3}
    return sorted(episodes, key=lambda episode: (rank[kind(episode, score)], episode.group, episode.sample_index))


def telling(episodes: Sequence[Episode], score: str | None, each: int = EACH) -> list[int]:
    """Slots of the first failures and the first successes in the order of the split."""
    slots: list[int] = []
    for wanted in (("failure", "unknown"), ("success",)):
        slots += [e.group for e in sorted(episodes, key=lambda e: e.group) if kind(e, score) in wanted][:each]
    return slots


def scenes(shown: Mapping[str, Shown], slots: Sequence[int], score: str | None) -> list[Scene]:
    """A clip of each of these slots with all policies next to each other."""
    chosen = {title: part.only(slots) for title, part in shown.items()}
    last = list(chosen.values())[-1]
    made = []
    for i, episode in enumerate(last.episodes):
        frames = clip(chosen, i, score)
        step = -(-len(frames) // _MOST_FRAMES)
        poster = io.BytesIO()
        Image.fromarray(frames[-1]).save(poster, "JPEG", quality=80)
        with tempfile.TemporaryDirectory() as folder:
            file = write_video(frames[::step], Path(folder) / "clip.mp4", last.fps / 2 / step)
            video = data_uri(file.read_bytes(), "video/mp4")
        picture = data_uri(poster.getvalue(), "image/jpeg")
        instruction = last.films[i].instruction
        made.append(Scene(video, picture, instruction, outcome(episode, score), kind(episode, score), episode.group))
    return made


def data_uri(content: bytes, media: str) -> str:
    """The content itself as an address."""
    return f"data:{media};base64,{base64.b64encode(content).decode()}"
