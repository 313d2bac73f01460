"""Messages of the assistant that a policy imitates, with calls of tools and reasoning, and videos of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class AssistantMessage(str):
    """A demonstrated message of the assistant that has more than text: calls of tools, or reasoning.

    As a text it is the message's content. A text policy's `encode_demonstration` writes all of it by the chat template.

    Args:
        text: content of the message.
        fields: the whole message: role, content, tool_calls, reasoning_content and so on.
    """

    fields: Mapping[str, Any]

    def __new__(cls, text: str, fields: Mapping[str, Any] | None = None) -> AssistantMessage:
        message = super().__new__(cls, text)
        message.fields = dict(fields or {"role": "assistant", "content": text})
        return message


def assistant_message(output: str) -> dict[str, Any]:
    """Return the chat message of a demonstrated answer, which is a text or an `AssistantMessage`."""
    if isinstance(output, AssistantMessage):
        return dict(output.fields)
    return {"role": "assistant", "content": output}


@dataclass(frozen=True, eq=False)
class Video:
    """Frames of a video, and when they are shown.

    Args:
        frames: uint8 [F, H, W, 3].
        fps: frames per second of the source; frame i of it is shown at i / fps seconds.
        indices: number of each frame in the source, ascending; None where `frames` are all of the source, and the
            processor of the policy chooses from them as it does by default.
        total: number of frames of the source; None for those up to the last of `frames`.
    """

    frames: np.ndarray
    fps: float
    indices: tuple[int, ...] | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        shape, dtype = self.frames.shape, self.frames.dtype
        if len(shape) != 4 or shape[3] != 3 or 0 in shape or dtype != np.uint8:
            raise ValueError(f"the frames of a video must be uint8 [F, H, W, 3], got {dtype} {list(shape)}")
        if not 0 < self.fps < float("inf"):
            raise ValueError(f"a video needs its frame rate, a number of frames per second > 0, got {self.fps}")
        order = self.indices if self.indices is not None else (0,)
        if self.indices is not None and len(order) != len(self.frames):
            raise ValueError(f"a video of {len(self.frames)} frames has {len(order)} indices; give one for each frame")
        if order[0] < 0 or list(order) != sorted(order):
            raise ValueError(f"indices of the frames of a video must ascend from 0 on, got {list(order)}")
        if self.total is not None and self.total < max(order[-1] + 1, len(self.frames) if self.indices is None else 1):
            raise ValueError(f"a video of {self.total} frames has no frame {order[-1]}; total is too small")

    def metadata(self) -> dict[str, Any]:
        """Describe the source as `transformers.video_utils.VideoMetadata` does, with the indices of the frames."""
        indices = list(range(len(self.frames)) if self.indices is None else self.indices)
        total = indices[-1] + 1 if self.total is None else self.total
        return {
            "total_num_frames": total,
            "fps": float(self.fps),
            "width": self.frames.shape[2],
            "height": self.frames.shape[1],
            "duration": total / self.fps,
            "frames_indices": indices,
        }


def content_text(content: Any) -> str:
    """The text of a chat message, whose content is a text, a list of parts or nothing."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def join_contents(messages: Sequence[Mapping[str, Any]]) -> str:
    """The texts of chat messages, a line break between two of them."""
    return "\n".join(content_text(message.get("content")) for message in messages)


def tokenize_steps(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], steps: Sequence[str], separator: str
) -> tuple[list[int], list[int]]:
    """Token ids of prompt and steps, and the position of the last token of the separator after each step.

    The prompt is written by the chat template, up to where the assistant's turn begins; without a template it is BOS
    and its text. Steps and separators are tokenised one by one, as TRL's PRMTrainer does, so that no token is in two.
    """
    mark = tokenizer(separator, add_special_tokens=False)["input_ids"]
    if not mark:
        raise ValueError(f"separator {separator!r} has no token; name a text with which a step ends")
    if tokenizer.chat_template is None:
        prompt = (tokenizer.bos_token or "") + join_contents(messages)
    else:
        prompt = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    ids = list(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    ends = []
    for step in steps:
        ids += [*tokenizer(step.removesuffix(separator), add_special_tokens=False)["input_ids"], *mark]
        ends.append(len(ids) - 1)
    return ids, ends
