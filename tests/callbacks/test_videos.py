"""Videos of a simulator reach the loggers during training, and the run is the same with and without them."""

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mmrl.__main__ import main
from mmrl.runs.checkpoint_file import read_weights
from tests.test_recipes import words_of


def words(folder, *more):
    kept = [word for word in words_of("demo_vla", folder) if not word.startswith(("trainer.logger=", "logger="))]
    return ["fit", *kept, "trainer.check_val_every_n_epoch=1", "trainer.max_epochs=2", *more]


def test_every_evaluation_sends_its_videos(tmp_path):
    more = ("logger=tensorboard", "trainer.callbacks.videos.count=2", "trainer.callbacks.videos.size=32")
    assert main(words(tmp_path / "with", *more)) == 0
    files = sorted(file.relative_to(tmp_path / "with/videos") for file in tmp_path.glob("with/videos/*/*.mp4"))
    events = EventAccumulator(str(tmp_path / "with" / "tensorboard"))
    events.Reload()
    names = {f"videos/{file.stem}" for file in files}
    assert len(names) == 2 and names <= set(events.Tags()["images"])
    assert len(files) == sum(len(events.Images(name)) for name in names) >= 4
    assert all(image.encoded_image_string.startswith(b"GIF89a") for name in names for image in events.Images(name))
    assert main(words(tmp_path / "without", "logger=csv")) == 0
    one, other = (read_weights(str(tmp_path / name / "checkpoints/last.ckpt"), False) for name in ("with", "without"))
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())


def test_a_task_without_a_simulator_is_refused(tmp_path, capsys):
    given = words_of("grpo", tmp_path / "text")
    assert main(["fit", *given, "trainer.callbacks.videos.count=1"]) != 0
    assert "trainer.callbacks.videos.count=1: it needs a task with a simulator" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["count=-1", "size=2"])
def test_numbers_out_of_range_are_refused(given, tmp_path, capsys):
    assert main(["fit", *words_of("grpo", tmp_path / "run"), f"trainer.callbacks.videos.{given}"]) == 2
    assert "must be at least" in capsys.readouterr().err
