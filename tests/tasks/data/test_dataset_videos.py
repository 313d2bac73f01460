"""Videos of data sets that stay videos: files and lists of frames, their times, and what is refused by row."""

import imageio.v2 as imageio
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from mmrl.core.errors import ConfigError
from mmrl.data.checks.prompt_lengths import check_prompt_lengths
from mmrl.policies.text.vision import VisionLanguagePolicy
from tasks.dataset import DatasetTask
from tests.checkpoints import qwen3_vl
from tests.tasks.data.test_dataset import write


@pytest.fixture
def folder(tmp_path):
    """A video of twelve frames at ten a second, brighter from frame to frame, and three images."""
    frames = [np.full((64, 48, 3), 20 * i, np.uint8) for i in range(12)]
    imageio.mimsave(tmp_path / "a.mp4", frames, fps=10, macro_block_size=1)
    for i, frame in enumerate(frames[:3]):
        Image.fromarray(frame).save(tmp_path / f"{i}.png")
    return tmp_path


def rows(folder, clip, **columns):
    table = [{"question": f"{i}?", "answer": i, "clip": clip, **columns} for i in range(3)]
    return write(folder / "a.jsonl", *table)


def shades(video):
    return video.frames.mean((1, 2, 3))


def test_a_file_is_one_video_with_the_times_of_its_frames(folder):
    prompt = DatasetTask(rows(folder, "a.mp4"), videos="clip", frames=4, show_videos="videos")[0]
    assert [part["type"] for part in prompt.messages[0]["content"]] == ["video", "text"] and not prompt.images
    (video,) = prompt.videos
    assert (video.fps, video.indices, video.total) == (10.0, (0, 4, 7, 11), 12)
    np.testing.assert_allclose(shades(video), [0, 80, 140, 220], atol=6)  # the codec changes shades a little


def test_frames_for_each_second(folder):
    """1.2 seconds, five frames a second: six of twelve; at most three of them."""
    for frames, indices in ((64, (0, 2, 4, 7, 9, 11)), (3, (0, 6, 11))):
        task = DatasetTask(rows(folder, "a.mp4"), videos="clip", frames=frames, fps=5.0, show_videos="videos")
        assert task[0].videos[0].indices == indices


def test_a_list_of_images_has_the_frame_rate_that_is_named(folder):
    path = rows(folder, ["0.png", "1.png", "2.png"], rate=3)
    options = {"videos": "clip", "frames": 2, "show_videos": "videos"}
    for rate in (3.0, "rate"):
        (video,) = DatasetTask(path, frame_rate=rate, **options)[0].videos
        assert (video.fps, video.indices, video.total) == (3.0, (0, 2), 3)
        np.testing.assert_array_equal(shades(video), [0, 40])
    with pytest.raises(ValueError, match=r"a\.jsonl:1: column 'clip'.*states no frame rate; set task\.frame_rate"):
        len(DatasetTask(path, **options))
    with pytest.raises(
        ValueError, match=r"column 'speed' \(task\.frame_rate\) must be frames per second > 0, got None"
    ):
        len(DatasetTask(path, frame_rate="speed", **options))


def test_marks_and_parts_say_where_videos_stand(folder):
    text = [{"role": "user", "content": "<image>first, then <video>this"}]
    parts = [{"type": "image", "image": "1.png"}, {"type": "text", "text": "x"}, {"type": "video", "video": "a.mp4"}]
    options = {"videos": "clip", "images": "pic", "prompt": "question", "show_videos": "videos"}
    path = write(
        folder / "b.jsonl",
        *({"question": text, "answer": i, "clip": "a.mp4", "pic": f"{i}.png"} for i in range(3)),
    )
    prompt = DatasetTask(path, **options)[0]
    assert [part["type"] for part in prompt.messages[0]["content"]] == ["image", "text", "video", "text"]
    path = write(
        folder / "c.jsonl",
        *(
            {"question": [{"role": "user", "content": [*parts, {"type": "text", "text": f"{i}"}]}], "answer": i}
            for i in range(3)
        ),
    )
    prompt = DatasetTask(path, show_videos="videos")[0]
    assert [part["type"] for part in prompt.messages[0]["content"]] == ["image", "text", "video", "text"]
    assert len(prompt.images) == len(prompt.videos) == 1
    assert len(DatasetTask(path, frames=3)[0].images) == 4  # one, and three frames that are images


def test_lengths_are_checked_with_blank_frames(folder, tmp_path):
    policy = VisionLanguagePolicy(path=str(qwen3_vl(tmp_path / "start")))
    task = DatasetTask(rows(folder, "a.mp4"), videos="clip", frames=4, show_videos="videos")
    (blank, prompt), tokens = (next(task.prompts_to_check()), task[0]), []
    for each in (blank, prompt):
        tokens.append(len(policy.encode(each.observation)["input_ids"]))
    assert tokens[0] == tokens[1] > 30
    check_prompt_lengths(task, policy, 16)
    with pytest.raises(ValueError, match=r"a\.jsonl:\d: the prompt has .* tokens and sampling\.max_tokens"):
        check_prompt_lengths(task, policy, 512 - tokens[0] + 1)


def test_broken_and_missing_files_are_refused_before_the_first_step(folder):
    options = {"videos": "clip", "show_videos": "videos"}
    with pytest.raises(FileNotFoundError, match=r"a\.jsonl:1: column 'clip' names .*b\.mp4, which does not exist"):
        len(DatasetTask(rows(folder, "b.mp4"), **options))
    content = (folder / "a.mp4").read_bytes()
    for name, broken in (("empty", b""), ("text", b"hello"), ("half", content[: len(content) // 2])):
        (folder / f"{name}.mp4").write_bytes(broken)
        with pytest.raises(ValueError, match=rf"a\.jsonl:1: column 'clip'.*{name}\.mp4|{name}\.mp4: not a readable"):
            len(DatasetTask(rows(folder, f"{name}.mp4"), **options))
    with pytest.raises(ValueError, match=r"the video a\.mp4 has 48 x 64 pixels, more than task\.max_pixels=100"):
        len(DatasetTask(rows(folder, "a.mp4"), max_pixels=100, **options))


def test_a_missing_decoder_is_named(folder, monkeypatch):
    def find():
        raise RuntimeError("No ffmpeg exe could be found")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", find)
    with pytest.raises(ConfigError, match=r"needs ffmpeg.*pip install imageio-ffmpeg.*IMAGEIO_FFMPEG_EXE"):
        len(DatasetTask(rows(folder, "a.mp4"), videos="clip", show_videos="videos"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fps": 2.0}, r"task\.fps=2\.0: .* set task\.show_videos=videos"),
        ({"frame_rate": "rate"}, r"task\.frame_rate=rate: .* set task\.show_videos=videos"),
        ({"show_videos": "films"}, r"task\.show_videos must be images or videos, got 'films'"),
        ({"show_videos": "videos", "fps": 0.0}, r"task\.fps must be in"),
        ({"show_videos": "videos", "frame_rate": -1.0}, r"task\.frame_rate must be in"),
    ],
)
def test_options_that_fit_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DatasetTask("nowhere.jsonl", videos="clip", **options)


def test_an_entry_of_a_video_part_that_is_not_read_is_refused(folder):
    part = {"type": "video", "video": "a.mp4", "nframes": 3}
    table = [{"question": [{"role": "user", "content": [part]}], "answer": i} for i in range(3)]
    with pytest.raises(ValueError, match=r"content part with 'nframes', which would not be read"):
        len(DatasetTask(write(folder / "b.jsonl", *table), show_videos="videos"))
