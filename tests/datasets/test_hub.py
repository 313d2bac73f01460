"""A dataset is named by its hub id where nothing stands at that path."""

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError

from mmrl.__main__ import main
from mmrl.datasets.formats import open_dataset
from mmrl.rollouts.offline.episodes import OfflineRollout
from tests.datasets.episodes import episode, write

OLDER = Path(__file__).parent / "lerobot_v21" / "image"


class Hub:
    """Repositories by id and revision, and what was asked for."""

    def __init__(self, monkeypatch, repositories):
        self.repositories, self.asked = repositories, []
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.download)

    def download(self, name, repo_type, revision="main"):
        self.asked.append((name, repo_type, revision))
        revisions = self.repositories.get(name)
        if revisions is None:
            raise LocalEntryNotFoundError("cannot find the requested files")
        if revision not in revisions:
            raise RevisionNotFoundError(f"no revision {revision}", response=_Response())
        return str(revisions[revision])


class _Response:
    headers, request = {}, None


def test_the_revision_of_the_format_is_asked_for_first(tmp_path, monkeypatch):
    folder = write(tmp_path / "cached", [episode(3, 0)])
    hub = Hub(monkeypatch, {"lerobot/new": {"v3.0": folder}, "lerobot/plain": {"main": folder}})
    monkeypatch.chdir(tmp_path)
    for name, revisions in (("lerobot/new", ["v3.0"]), ("lerobot/plain", ["v3.0", "main"])):
        hub.asked.clear()
        assert open_dataset(name).lengths() == [3]
        assert hub.asked == [(name, "dataset", revision) for revision in revisions]


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    hub = Hub(monkeypatch, {})
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data" / "set", [episode(3, 0)])
    assert open_dataset("data/set").lengths() == [3] and hub.asked == []


def test_what_the_hub_does_not_give_is_refused_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Hub(monkeypatch, {})
    with pytest.raises(ValueError, match=r"data/none: no such folder or file, and the hub gave no.*cannot find"):
        open_dataset("data/none")
    for path in ("none", "a/b/c", "/data/none", "data/a b"):
        with pytest.raises(ValueError, match="no such folder or file; name"):
            open_dataset(path)


def test_rollouts_take_ids(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Hub(monkeypatch, {"lerobot/new": {"v3.0": write(tmp_path / "cached", [episode(3, 0)])}})
    OfflineRollout("lerobot/new")
    with pytest.raises(ValueError, match=r"rollout\.path=lerobot/none: no such folder or file, and the hub gave no"):
        OfflineRollout("lerobot/none")


def test_an_older_one_is_converted_by_its_id(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    Hub(monkeypatch, {"lerobot/old": {"main": OLDER}})
    with pytest.raises(ValueError, match=r"convert it once: mmrl data convert"):
        open_dataset("lerobot/old")
    assert main(["data", "convert", "lerobot/old", "out=new"]) == 0
    assert open_dataset("new").lengths() == [4, 3]
    # a sheet of pictures lies beside a dataset of one's own, and not in the hub's cache
    Hub(monkeypatch, {"lerobot/new": {"v3.0": tmp_path / "new"}})
    assert main(["data", "inspect", "lerobot/new"]) == 0
    assert (tmp_path / "contact_sheet.png").is_file()
