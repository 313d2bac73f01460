"""Videos are read within a time limit, and the frames are those that imageio reads."""

import functools
import time
from types import SimpleNamespace

import imageio.v2 as imageio
import imageio.v3 as iio
import imageio_ffmpeg
import numpy as np
import pytest

from mmrl.datasets import video_file
from mmrl.media import reading
from mmrl.media.ffmpeg import count_frames, read_frames
from tasks.dataset.media import Media


@pytest.fixture
def clip(tmp_path):
    rng = np.random.default_rng(0)
    frames = [np.kron(rng.integers(0, 255, (4, 3, 3)), np.ones((16, 16, 1))).astype(np.uint8) for _ in range(7)]
    imageio.mimsave(tmp_path / "a.mp4", frames, fps=5, macro_block_size=1)
    return tmp_path / "a.mp4"


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """Put a program that never ends in the place of ffmpeg."""
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(program))


def test_frames_and_their_number_are_those_of_imageio(clip):
    frames = list(read_frames(str(clip), 48, 64))
    np.testing.assert_array_equal(frames, list(iio.imiter(clip, plugin="FFMPEG")))
    assert count_frames(str(clip)) == imageio_ffmpeg.count_frames_and_secs(clip)[0] == len(frames) == 7
    assert frames[0].flags.writeable


def test_a_reader_that_is_left_ends_ffmpeg(clip):
    frames = read_frames(str(clip), 48, 64)
    next(frames)
    frames.close()
    with pytest.raises(RuntimeError, match="ends within a frame"):
        list(read_frames(str(clip), 49, 64))


def test_ffmpeg_that_does_not_end_is_killed(clip, hanging):
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"longer than 0\.2 s"):
        count_frames(str(clip), limit_s=0.2)
    with pytest.raises(RuntimeError, match=r"longer than 0\.2 s"):
        list(read_frames(str(clip), 48, 64, limit_s=0.2))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["count_frames", "read_frames"])
def test_the_message_names_the_file_and_the_row(name, clip, monkeypatch):
    late = {"count_frames": count_frames, "read_frames": read_frames}[name]
    monkeypatch.setattr(reading, name, functools.partial(late, limit_s=0.0))
    message = r"^a\.jsonl:3: column 'clip': a\.mp4 cannot be read as a video \(ffmpeg took longer than 0 s\); replace"
    with pytest.raises(ValueError, match=message):
        Media(clip, "a.jsonl:3: column 'clip'", frames=2).load(10**6)


def test_a_video_without_a_frame_is_refused_by_name(clip, monkeypatch):
    monkeypatch.setattr(reading, "read_frames", lambda *_: iter(()))
    with pytest.raises(ValueError, match=r"^row 1: a\.mp4 cannot be read as a video \(it has no frame that can be"):
        Media(clip, "row 1", frames=2).load(10**6)


def test_frames_of_an_episode_have_a_time_limit(clip, monkeypatch):
    pytest.importorskip("av")
    assert video_file.decode(clip, 0.0, 7, 5, (64, 48, 3)).shape == (7, 64, 48, 3)
    clock = SimpleNamespace(monotonic=iter((0.0, video_file.LIMIT_S + 1)).__next__)
    monkeypatch.setattr(video_file, "time", clock)
    with pytest.raises(ValueError, match=r"a\.mp4: decoding 7 frames from 0\.000 s on takes over 600 s"):
        video_file.decode(clip, 0.0, 7, 5, (64, 48, 3))
