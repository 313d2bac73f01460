"""Checkpoints that a stranger wrote with right checksums: each is one message that names the file."""

import copy
import json
import sys
import zipfile

import pytest
import torch

from mmrl.__main__ import main
from mmrl.core.errors import is_user_error
from mmrl.runs.checkpoint_file import (
    MANIFEST,
    CheckpointError,
    read_checkpoint,
    read_manifest,
    read_weights,
    write_checkpoint,
)
from tests.malformed.files.checkpoints import PLACES, RESTORED, TREES, TYPES
from tests.malformed.test_file_commands import SFT


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert main([*SFT, "task=arithmetic", f"run_dir={folder}"]) == 0
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")


def written(checkpoint, change, folder):
    saved = {name: value if name == "state_dict" else copy.deepcopy(value) for name, value in checkpoint.items()}
    change(saved)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        torch.save(saved, folder / "x.ckpt")  # without the limits of `write_checkpoint`
    finally:
        sys.setrecursionlimit(limit)
    return folder / "x.ckpt"


@pytest.mark.parametrize("name", [*TREES, *TYPES])
def test_plain_data_of_other_types_is_refused(name, checkpoint, tmp_path):
    small = {**checkpoint, "state_dict": {}}
    path = written(small, {**TREES, **TYPES}[name], tmp_path)
    with pytest.raises(CheckpointError, match=r"x\.ckpt.*(use another checkpoint|use another)") as error:
        read_checkpoint(path)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("read", [read_checkpoint, read_weights, read_manifest], ids=lambda read: read.__name__)
def test_what_is_no_file_is_refused(name, read, tmp_path):
    path = PLACES[name](tmp_path)
    with pytest.raises(CheckpointError, match=r"x\.ckpt") as error:
        read(path)
    assert is_user_error(error.value)


@pytest.mark.parametrize("name", RESTORED)
def test_a_state_that_cannot_be_restored_is_refused(name, checkpoint, tmp_path, capsys):
    path = written(checkpoint, RESTORED[name], tmp_path)
    words = [*SFT, "task=arithmetic", f"run_dir={tmp_path}/out", "trainer.max_epochs=2", f"ckpt_path={path}"]
    assert main(words) in (1, 2)
    message = capsys.readouterr().err
    assert (
        ("x.ckpt" in message or "curriculum" in message)
        and "Traceback" not in message
        and len(message.strip().splitlines()) <= 3
    ), message


def manifest(content, compressed=False):
    def build(folder):
        kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        with zipfile.ZipFile(folder / "x.ckpt", "w", kind) as archive:
            archive.writestr(MANIFEST, content)
        return folder / "x.ckpt"

    return build


SUMS = {"format": "mmrl checkpoint 1", "sha256": {}}
MANIFESTS = {
    "a list": manifest("[]"),
    "broken": manifest("{"),
    "sums that are a list": manifest(json.dumps({**SUMS, "sha256": []})),
    "no sums": manifest(json.dumps({"format": "mmrl checkpoint 1"})),
    "no parts": manifest(json.dumps(SUMS)),
    "another format": manifest(json.dumps({"format": "mmrl checkpoint 2"})),
    "compressed": manifest(json.dumps(SUMS), compressed=True),
    "50 MB of blanks": manifest(b" " * 50_000_000, compressed=True),
    "2 MB": manifest(b" " * 2_000_000),
    "deep": manifest("[" * 100_000),
    "a half character": manifest('{"format": "\\ud800"}'),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_refused(name, tmp_path):
    path = MANIFESTS[name](tmp_path)
    with pytest.raises(CheckpointError, match=r"x\.ckpt"):
        read_checkpoint(path)


def test_a_right_tree_is_read(checkpoint, tmp_path):
    shared = [1, 2]
    saved = {**checkpoint, "more": {"a": shared, "b": shared, "c": (1, {2}, "x"), "d": [[[[[]]]]]}}
    write_checkpoint(saved, tmp_path / "x.ckpt")
    assert read_checkpoint(tmp_path / "x.ckpt")["more"] == saved["more"]
    stored = read_manifest(tmp_path / "x.ckpt")
    assert stored["epoch"] == 0 and len(stored["sha256"]) == 3
