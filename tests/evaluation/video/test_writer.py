"""An ffmpeg that hangs, dies or is absent costs a video and no run; a good one writes what imageio writes."""

import time

import imageio.v2 as imageio
import numpy as np
import pytest

from mmrl.evaluation.video.mp4 import encode_mp4
from mmrl.evaluation.video.writer import MOST_FAILURES, CountingVideoWriter

FRAMES = list(np.random.default_rng(0).integers(0, 256, (100, 64, 48, 3), dtype=np.uint8))
BROKEN = {
    "hangs without reading": ("echo $$ > PID; exec sleep 600", "longer than 0.5 s"),
    "hangs after reading": ("echo $$ > PID; cat > /dev/null; exec sleep 600", "longer than 0.5 s"),
    "stops": ("echo $$ > PID; kill -STOP $$", "longer than 0.5 s"),
    "is killed": ("head -c 1000 > /dev/null; kill -KILL $$", "ended with status -9"),
    "fails": ("echo no codec >&2; exit 3", "ended with status 3: no codec"),
    "writes nothing": ("cat > /dev/null", "ended with status 0: no message"),
}


def install(script, folder, monkeypatch):
    program = folder / "ffmpeg"
    program.write_text("#!/bin/sh\n" + script.replace("PID", str(folder / "pid")) + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_video_that_is_not_written_is_counted_and_warned_of_once(kind, tmp_path, monkeypatch, caplog):
    script, cause = BROKEN[kind]
    install(script, tmp_path, monkeypatch)
    writer, started = CountingVideoWriter(limit_s=0.5), time.monotonic()
    assert [writer.write(FRAMES, tmp_path / "videos" / f"{i}.mp4") for i in range(6)] == [None] * 6
    assert time.monotonic() - started < 30 and not list((tmp_path / "videos").iterdir())
    writer.warn_failures()
    first, limit, total = (record.getMessage() for record in caplog.records)
    assert first.startswith("0.mp4 is not written, and the run goes on: ffmpeg") and cause in first
    assert limit == f"no further video is tried after {MOST_FAILURES} failures in a row"
    assert total == "6 of 6 videos are not written"
    if (tmp_path / "pid").exists():
        number = (tmp_path / "pid").read_text().strip()
        assert not is_alive(int(number))


def is_alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_absent_program_costs_no_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "nowhere"))
    assert CountingVideoWriter().write(FRAMES, tmp_path / "a.mp4") is None and "does not start" in caplog.text


def test_the_bytes_are_those_of_imageio(tmp_path):
    path = CountingVideoWriter().write(FRAMES, tmp_path / "a.mp4", fps=12.5)
    options = {"codec": "libx264", "pixelformat": "yuv420p", "quality": 8, "macro_block_size": 1}
    imageio.mimsave(tmp_path / "b.mp4", FRAMES, fps=12.5, **options)
    assert path is not None and path.read_bytes() == (tmp_path / "b.mp4").read_bytes()
    encode_mp4(FRAMES[:1], tmp_path / "c.mp4", 30)
    assert len(imageio.mimread(tmp_path / "c.mp4")) == 1
