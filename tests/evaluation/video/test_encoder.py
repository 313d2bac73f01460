import imageio.v2 as imageio
import numpy as np
import pytest

from mmrl.evaluation.video.encoder import GREEN, MARGIN, RED, VideoPanel, tile_panels, write_video


def flat(*levels, side=64):
    return [np.full((side, side, 3), level, np.uint8) for level in levels]


def shows(frame, colour):
    """Whether pixels of exactly this colour are in the frame."""
    return bool((frame == np.array(colour)).all(axis=2).any())


def test_clips_stand_next_to_each_other_and_the_shorter_holds_its_last_frame():
    frames = tile_panels(
        [VideoPanel(flat(10, 20, 30), "before"), VideoPanel(flat(110, 120), "after")], "reach the red cube"
    )
    assert len(frames) == 3
    middle_row = frames[0].shape[0] // 2
    left, right = MARGIN + 128, 2 * MARGIN + 256 + 128  # 64 pixels enlarged four times to 256
    assert [int(frame[middle_row, left, 0]) for frame in frames] == [10, 20, 30]
    assert [int(frame[middle_row, right, 0]) for frame in frames] == [110, 120, 120]


@pytest.mark.parametrize("side", [63, 64, 250, 301])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_sides_are_even_and_frames_of_one_size(side, count):
    frames = tile_panels([VideoPanel(flat(9, 9, side=side), "t", "o")] * count, "an instruction" * 20)
    assert len({frame.shape for frame in frames}) == 1
    height, width, channels = frames[0].shape
    assert height % 2 == width % 2 == 0 and channels == 3 and frames[0].dtype == np.uint8


def test_outcome_appears_when_its_clip_has_ended():
    panels = [
        VideoPanel(flat(0, 0, 0), "before", "wrong object", False),
        VideoPanel(flat(0, 0), "after", "reached", True),
    ]
    frames = tile_panels(panels)
    assert [shows(frame, GREEN) for frame in frames] == [False, True, True]
    assert [shows(frame, RED) for frame in frames] == [False, False, True]


def test_words_are_drawn():
    plain = tile_panels([VideoPanel(flat(0), "")], "x")[0]
    assert (plain != tile_panels([VideoPanel(flat(0), "before")], "x")[0]).any()
    assert (plain != tile_panels([VideoPanel(flat(0), "")], "y")[0]).any()


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_written_video_can_be_read_again(tmp_path, suffix):
    frames = tile_panels([VideoPanel(flat(0, 80, 160, 240), "before"), VideoPanel(flat(240, 160), "after")], "reach")
    back = imageio.mimread(write_video(frames, tmp_path / "new" / f"clip{suffix}", fps=4))
    assert len(back) == 4
    for wrote, read in zip(frames, back):
        assert wrote.shape == read[..., :3].shape
        # lossy codecs move a flat area by a few of 255 levels
        middle = wrote.shape[0] // 2
        assert abs(int(wrote[middle, 136, 0]) - int(read[middle, 136, 0])) <= 6


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="no panels"):
        tile_panels([])
    with pytest.raises(ValueError, match="panel 'after' has no frames"):
        tile_panels([VideoPanel(flat(1), "before"), VideoPanel([], "after")])
    with pytest.raises(ValueError, match="all frames must be uint8"):
        tile_panels([VideoPanel(flat(1), "before"), VideoPanel(flat(1, side=32), "after")])
    with pytest.raises(ValueError, match="all frames must be uint8"):
        tile_panels([VideoPanel([np.zeros((4, 4, 3))], "before")])
    with pytest.raises(ValueError, match=r"as \.mp4 or \.gif, not '\.avi'"):
        write_video(flat(1), tmp_path / "x.avi")
    with pytest.raises(ValueError, match="even sides"):
        write_video(flat(1, side=33), tmp_path / "x.mp4")
    with pytest.raises(ValueError, match="no frames"):
        write_video([], tmp_path / "x.mp4")
