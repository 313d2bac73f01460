"""A checkpoint from somebody else runs nothing, whichever way it comes in; trust=true is the user's word for it."""

import pytest
import torch

from mmrl.__main__ import main
from mmrl.runs.checkpoint_file import read_checkpoint
from tests.runs.test_checkpoint_file import Bomb
from tests.runs.words import fit

SHORT = ("trainer.max_epochs=1", "data.evaluation.count=2", "trainer.callbacks.curve=null")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    assert fit(folder, *SHORT) == 0
    return folder


def test_three_bombs_run_nothing(run, tmp_path, capsys):
    mark, bomb = tmp_path / "ran", run / "checkpoints" / "bomb.ckpt"
    torch.save({**read_checkpoint(run / "checkpoints" / "last.ckpt"), "callbacks": Bomb(mark)}, bomb)
    roads = {
        "resumed": lambda: fit(tmp_path / "a", *SHORT, f"ckpt_path={bomb}"),
        "evaluated": lambda: main(["evaluate", str(run), "checkpoint=bomb", "count=2"]),
        "begun with": lambda: fit(tmp_path / "b", *SHORT, f"trainer.callbacks.warm_start.checkpoint={bomb}"),
    }
    for road, go in roads.items():
        assert go() != 0, road
        message = capsys.readouterr().err
        assert "bomb.ckpt holds pickled objects" in message and "trust=true" in message and "Traceback" not in message
        assert not mark.exists(), road
    assert fit(tmp_path / "c", *SHORT, f"trainer.callbacks.warm_start.checkpoint={bomb}", "trust=true") == 0
    assert mark.exists()
    bomb.unlink()


def test_a_folder_of_shards_is_read_with_pickle_and_so_refused(run, tmp_path, capsys):
    (tmp_path / "sharded.ckpt").mkdir()
    (tmp_path / "sharded.ckpt" / ".metadata").write_bytes(b"")
    assert fit(tmp_path / "a", *SHORT, "strategy=fsdp2", f"ckpt_path={tmp_path}/sharded.ckpt") == 2
    assert "is read with pickle" in capsys.readouterr().err


def test_a_configuration_file_cannot_ask_for_trust(run, tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text((run / "config.yaml").read_text() + "trust: true\n")
    assert main(["fit", "--config", str(config), "--run_dir", str(tmp_path / "a")]) == 2
    assert "trust" in capsys.readouterr().err


def test_weights_without_a_run_cannot_be_resumed(run, tmp_path, capsys):
    assert fit(tmp_path / "a", *SHORT, f"ckpt_path={run}/checkpoints/start.ckpt") == 2
    assert "cannot be resumed, only begun with: trainer.callbacks.warm_start.checkpoint=" in capsys.readouterr().err
