"""Questions about frames of moving shapes: when, how many, in which order, which frame is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Prompt, Video
from tasks.checks import check_range
from tasks.clips.corruptions import CORRUPTIONS, DRAWN, OTHER_FILM, SEVERAL, SYMMETRIES
from tasks.clips.scene import Mover, Paste, draw_movers, draw_pastes, paste_shapes, render_frame
from tasks.clips.verify import find_complement, verify_counts, verify_frame, verify_interval, verify_order
from tasks.generated import GeneratedTask, to_tuples

QUESTIONS = {
    "grounding": "Which frames are altered? Answer as in 2-3.",
    "paste": "How many black circles, squares and triangles are pasted in? Answer as in 2,0,1.",
    "count": "How many discs and how many squares are there? Answer as in 2,1.",
    "order": "The frames are shuffled. At which place of the film is each? Answer as in 3 1 2.",
    "anomaly": "Which frame does not belong to the film?",
}


@dataclass(frozen=True)
class Clip:
    """A kind of question, the shapes, what is done to the frames, and the right answer as values."""

    kind: str
    movers: tuple[Mover, ...]
    corruption: str  # of some frames; "" for none
    intruder: tuple[Mover, ...]  # shapes of the frames that do not belong
    answer: tuple[int, ...]
    seed: int = 0  # of a corruption that is drawn
    pastes: tuple[Paste, ...] = ()


@dataclass(frozen=True)
class Clips(GeneratedTask):
    """Short clips, as several images or as a video. No clip is in both splits.

    Source: VideoSSR, "Video Self-Supervised Reinforcement Learning", 2025, for grounding, counting and order.

    Args:
        kinds: of grounding (which frames are altered), paste (black shapes in some frames), count, order (of shuffled
            frames) and anomaly.
        frames: number of frames, from 2 to 32.
        movers: fewest and most moving shapes.
        speed: distance between two frames as a fraction of the image's side.
        corruptions: of `CORRUPTIONS`, for grounding: grey, invert, swap (red and blue), rotate (by 180 degrees), turn
            (by 90), noise, zoom_in, zoom_out, mirror, blur, saturate, shuffle, freeze and other (frames of another
            film).
        time: write the number of each frame before it.
        size: side of each frame in pixels.
        video: show a clip as a video, for policies whose processor takes videos; the number of a frame is its place.
        fps: frames per second of the video.
    """

    kinds: Sequence[str] = ("grounding",)
    frames: int = 4
    movers: Sequence[int] = (1, 3)
    speed: float = 0.12
    corruptions: Sequence[str] = ("grey", "invert")
    time: bool = True
    size: int = 32
    video: bool = False
    fps: float = 2.0

    name = "clips"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "kinds", "movers", "corruptions")
        for key, choices in (("kinds", QUESTIONS), ("corruptions", CORRUPTIONS)):
            if not getattr(self, key) or not set(getattr(self, key)) <= set(choices):
                raise ValueError(f"task {self.name!r}: {key} must be of {', '.join(choices)}, got {getattr(self, key)}")
        check_interval(f"task {self.name!r}:", "[2, 32]", frames=self.frames)
        check_at_least(16, f"task {self.name!r}:", size=self.size)
        check_interval(f"task {self.name!r}:", "(0, 0.5]", speed=self.speed)
        check_interval(f"task {self.name!r}:", "(0, 1000]", fps=self.fps)
        check_range(self.name, "movers", self.movers, 1, 8)

    def draw(self, rng: np.random.Generator) -> Clip | None:
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        movers = self._draw_movers(rng)
        corruption, intruder, seed, pastes = "", (), 0, ()
        if kind == "grounding":
            first, last = sorted(rng.integers(1, self.frames, endpoint=True, size=2).tolist())
            corruption = self.corruptions[int(rng.integers(len(self.corruptions)))]
            answer = (first, last)
            if last - first + 1 == self.frames or (corruption in SEVERAL and first == last):
                return None  # nothing would show that frames are altered
            seed = int(rng.integers(2**31)) if corruption in DRAWN else 0
            intruder = self._draw_movers(rng) if corruption == OTHER_FILM else ()
            if corruption == OTHER_FILM and _looks(movers) == _looks(intruder):
                return None
        elif kind == "paste":
            pastes, answer = draw_pastes(rng, self.frames)
        elif kind == "count":
            discs = sum(mover.round for mover in movers)
            answer = (discs, len(movers) - discs)
        elif kind == "order":
            answer = tuple((rng.permutation(self.frames) + 1).tolist())
        else:
            intruder = self._draw_movers(rng)
            answer = (int(rng.integers(1, self.frames, endpoint=True)),)
            if self.frames < 3 or _looks(movers) == _looks(intruder):
                return None
        clip = Clip(kind, movers, corruption, intruder, answer, seed, pastes)
        return clip if self._is_clear(clip) else None

    def split_key(self, problem: Clip) -> str:
        return repr(problem.movers)

    def write_prompt(self, problem: Clip, key: str) -> Prompt:
        frames, content = self._render(problem), [{"type": "video"}] if self.video else self._list_frames()
        return Prompt(
            key,
            ({"role": "user", "content": [*content, {"type": "text", "text": QUESTIONS[problem.kind]}]},),
            images=() if self.video else tuple(frames),
            videos=(Video(np.stack(frames), self.fps, tuple(range(self.frames))),) if self.video else (),
            answer=problem.answer,
            info={"kind": problem.kind, "corruption": problem.corruption},
        )

    def _list_frames(self) -> list[dict[str, Any]]:
        """The content parts of frames that are images."""
        content: list[dict[str, Any]] = []
        for number in range(1, self.frames + 1):
            content += [{"type": "text", "text": f"{number}:"}] if self.time else []
            content.append({"type": "image"})
        return content

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        kind, right = prompt.info["kind"], prompt.answer
        if kind == "grounding":
            rights = [right]
            if prompt.info["corruption"] in SYMMETRIES and (other := find_complement(right, self.frames)) is not None:
                rights.append(other)
            return max((verify_interval(answer, each, self.frames) for each in rights), key=lambda found: found["iou"])
        if kind in ("count", "paste"):
            return verify_counts(answer, right)
        return verify_order(answer, right) if kind == "order" else verify_frame(answer, right[0], self.frames)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        kind = prompt.info["kind"]
        if kind == "grounding":
            numbers: Sequence[int] = sorted(rng.integers(1, self.frames, endpoint=True, size=2).tolist())
        elif kind == "paste":
            numbers = rng.integers(0, 3, endpoint=True, size=3).tolist()
        elif kind == "count":
            numbers = rng.integers(0, self.movers[1], endpoint=True, size=2).tolist()
        elif kind == "order":
            numbers = (rng.permutation(self.frames) + 1).tolist()
        else:
            numbers = [int(rng.integers(1, self.frames, endpoint=True))]
        return self.write_answer(_write(kind, numbers))

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        return self.write_answer(_write(problem.kind, problem.answer))

    def _draw_movers(self, rng: np.random.Generator) -> tuple[Mover, ...]:
        return draw_movers(rng, int(rng.integers(self.movers[0], self.movers[1], endpoint=True)), self.speed)

    def _render(self, clip: Clip) -> list[np.ndarray]:
        whole = [render_frame(clip.movers, time, self.size) for time in range(self.frames)]
        frames = list(whole)
        if clip.kind == "grounding":
            first, last = clip.answer
            if clip.corruption == OTHER_FILM:
                frames = [render_frame(clip.intruder, time, self.size) for time in range(self.frames)]
                frames[: first - 1], frames[last:] = whole[: first - 1], whole[last:]
            part = np.stack(frames[first - 1 : last])
            frames[first - 1 : last] = CORRUPTIONS[clip.corruption](part, np.random.default_rng(clip.seed))
        elif clip.kind == "paste":
            return [paste_shapes(frame, clip.pastes, time) for time, frame in enumerate(frames)]
        elif clip.kind == "order":
            return [np.ascontiguousarray(frames[place - 1]) for place in clip.answer]
        elif clip.kind == "anomaly":
            place = clip.answer[0] - 1
            frames[place] = render_frame(clip.intruder, place, self.size)
        return [np.ascontiguousarray(frame) for frame in frames]

    def _is_clear(self, clip: Clip) -> bool:
        """Return whether all frames differ and each shape shows in one of them, so that it can be counted."""
        frames = self._render(clip)
        frozen = clip.answer[1] - clip.answer[0] if clip.corruption == "freeze" else 0
        if len({frame.tobytes() for frame in frames}) < len(frames) - frozen:
            return False
        whole = [render_frame(clip.movers, time, self.size) for time in range(self.frames)]
        for i, mover in enumerate(clip.movers):
            others = clip.movers[:i] + clip.movers[i + 1 :]
            area = max(
                (frame != render_frame(others, time, self.size)).any(2).mean() for time, frame in enumerate(whole)
            )
            if area < 0.7 * mover.radius**2 * (np.pi if mover.round else 4):
                return False
        return True


def _write(kind: str, values: Sequence[int]) -> str:
    return {"grounding": "-", "count": ",", "paste": ","}.get(kind, " ").join(map(str, values))


def _looks(movers: Sequence[Mover]) -> set[tuple[bool, int]]:
    return {(mover.round, mover.colour) for mover in movers}
