"""Arguments of processors for the videos of a prompt, and prompts with videos for the comparison at load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.types import Video

FRAMES = 4
"""Frames of a video of the comparison: two steps in time where a model joins pairs of them."""
SIZES = ((48, 48), (32, 96))
"""Height and width of the videos of the comparison, in pixels."""
RATES = (2.0, 1.5)
"""Their frames per second."""


def video_options(videos: Sequence[Video]) -> dict[str, Any]:
    """Build the arguments of a processor for the videos of a prompt: frames, and where they stand in their sources.

    A processor chooses frames, where it does so by default, from videos that are whole (`Video.indices` is None).

    Raises:
        ValueError: some of the videos are whole, and of others the frames are chosen already.
    """
    if not videos:
        return {}
    whole = [video.indices is None for video in videos]
    if any(whole) and not all(whole):
        raise ValueError(
            "of some videos of a prompt all frames are given, of others a choice (Video.indices); a processor chooses "
            "frames from all videos of a prompt or from none: give indices to all, or to none"
        )
    options = {"videos": [video.frames for video in videos], "video_metadata": [video.metadata() for video in videos]}
    return options if all(whole) else {**options, "do_sample_frames": False}


def refuse_videos(text: str, count: int, processor: Any, path: str | None, reason: str) -> None:
    """Refuse a prompt with videos that the processor does not take, the template does not write, or the model changes.

    Args:
        text: of the prompt, as the chat template writes it.
        count: of its videos.
        processor: of the checkpoint.
        path: of the checkpoint.
        reason: why the comparison at load refuses videos; empty if it does not.

    Raises:
        ValueError: with what to do.
    """
    remedy = "or show frames as images (task.show_videos=images)"
    if getattr(processor, "video_processor", None) is None:
        raise ValueError(
            f"policy.path={path!r}: its processor ({type(processor).__name__}) takes no videos, but the prompt has "
            f"{count}; choose a checkpoint that reads videos, such as qwen2_5_vl, qwen3_vl, llava_onevision or "
            f"internvl, {remedy}"
        )
    token = getattr(processor, "video_token", None)
    places = text.count(token) if isinstance(token, str) else 0
    if places != count:
        raise ValueError(
            f"policy.path={path!r}: the prompt has {count} video(s), and its chat template writes the token of a video "
            f"({token!r}) {places} time(s); use the chat template of a checkpoint that reads videos, {remedy}"
        )
    if reason:
        raise ValueError(
            f"policy.path={path!r}: prompts with videos are not computed as in transformers alone: {reason}; choose "
            f"another checkpoint, {remedy}"
        )


def build_video_probes(canary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build two prompts from one with an image: a video of four frames, and an image with another video."""
    (message,) = canary["messages"]
    text = [part for part in message["content"] if part["type"] == "text"]
    prompts = []
    for kinds, size, rate in zip((("video",), ("image", "video")), SIZES, RATES):
        ramp = np.arange(FRAMES * size[0] * size[1] * 3, dtype=np.uint32).reshape(FRAMES, *size, 3)
        time = np.arange(FRAMES, dtype=np.uint32)[:, None, None, None]
        video = Video(((ramp * 37 + time * 50) % 251).astype(np.uint8), rate, tuple(range(FRAMES)))
        content = [*({"type": kind} for kind in kinds), *text]
        images = tuple(canary["images"]) if "image" in kinds else ()
        prompts.append({"messages": ({**message, "content": content},), "images": images, "videos": (video,)})
    return prompts
