"""A run on a file system that becomes full ends with one line and keeps its last checkpoint."""

import os
import subprocess
from pathlib import Path

import lightning as L
import pytest

from mmrl.runs.checkpoint_file import read_checkpoint
from tests.runs.words import fit


class Filled(L.Callback):
    """Fills the file system of a folder when an iteration begins."""

    def __init__(self, folder: str, epoch: int):
        self.folder, self.epoch = folder, epoch

    def on_train_epoch_start(self, trainer, *_):
        if trainer.current_epoch == self.epoch:
            fill(Path(self.folder) / "other")


def fill(path: Path) -> None:
    """Take all the room that is left, but for a few pages of what is written small."""
    with path.open("wb") as file:
        try:
            while file.write(bytes(4096)):
                file.flush()
        except OSError:
            os.ftruncate(file.fileno(), max(0, os.fstat(file.fileno()).st_size - 16 * 4096))


@pytest.fixture
def small(tmp_path):
    """A file system of its own of 3 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root and the right to mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("board", ["null", "{_target_: lightning.pytorch.loggers.TensorBoardLogger, save_dir: %s}"])
def test_a_full_disk_is_one_line_and_the_checkpoint_before_stays(board, small, capsys):
    run = small / "run"
    filled = f"trainer.callbacks.filled={{_target_: tests.runs.test_full_disk.Filled, folder: {small}, epoch: 1}}"
    logger = f"trainer.logger.tensorboard={board % run if '%' in board else board}"
    words = ("trainer.max_epochs=3", "trainer.callbacks.curve=null", "data.evaluation.count=2", logger)
    status = fit(run, *words, filled)
    message = capsys.readouterr().err
    assert status != 0 and "Traceback" not in message
    (line,) = [line for line in message.splitlines() if line.startswith("mmrl fit: ")]
    assert "No space left on device" in line
    last = run / "checkpoints" / "last.ckpt"
    assert read_checkpoint(last)["epoch"] == 0
    assert sorted(os.listdir(run / "checkpoints")) == ["last.ckpt", "start.ckpt"]
    (small / "other").unlink()
    assert fit(run, *words, f"ckpt_path={last}") == 0
