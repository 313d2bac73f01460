"""Clips with thoughts: the demonstration by hand, and a verifier that reads the answer and the reasoning before it."""

import pytest

from mmrl.methods.vision.veripo import follows_from_reasoning
from tasks.clips.captioned import CaptionedClips
from tests.tasks.replies import reply

TASK = CaptionedClips(frames=8, size=24)


def test_demonstrations_name_the_frame_three_times_and_follow():
    for index in range(20):
        prompt, text = TASK[index], TASK.demonstrate(index)
        (frame,) = prompt.answer
        films = ["a"] * 8
        films[frame - 1] = "b"
        assert text == f"<think>{' '.join(films)}</think>frame {frame}<answer>{frame}</answer>"
        assert len(prompt.images) == 8 and prompt.info["kind"] == "anomaly"
        assert TASK.score(reply(prompt, text)) == {"format": 1.0, "exact": 1.0}
        assert follows_from_reasoning(text) == 1
        other = frame % 8 + 1
        assert follows_from_reasoning(f"<think>a b</think>frame {other}<answer>{frame}</answer>") == 0
        assert TASK.score(reply(prompt, f"frame {frame}<answer>{other}</answer>"))["exact"] == 0


def test_other_kinds_are_refused():
    with pytest.raises(ValueError, match=r"set kinds to \[anomaly\]"):
        CaptionedClips(kinds=("count",))
