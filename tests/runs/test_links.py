"""A link in a run's folder is replaced or refused: what it points to is never written."""

import ast
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

import mmrl
from mmrl.core.errors import ConfigError
from mmrl.evaluation.protocol import Protocol
from mmrl.evaluation.report.html_report import HtmlReport
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.evaluation.video.encoder import write_video
from mmrl.files.atomic import append_to, check_inside, replace_file, replace_folder, replace_path, write_file
from mmrl.files.contract import write_contract
from mmrl.runs.checkpoint_file import write_checkpoint
from mmrl.runs.metrics_csv import MetricsCSV
from mmrl.runs.run_folder import own_folder
from mmrl.samples.folder import SampleFolder

ROOT = Path(mmrl.__file__).parent
BEFORE = "this is not yours"
FRAMES = [np.zeros((16, 16, 3), np.uint8)] * 2


def metrics(folder):
    logger = MetricsCSV(str(folder))
    for iteration in (1, 2):
        logger.log_metrics({"iterations": iteration, "loss": 0.5}, step=iteration)


def inside(folder):
    with own_folder(str(folder), None, overwrite=True):
        pass


class Page(HtmlReport):
    """A report without a measurement."""

    def html(self):
        return "new"


WRITERS = {
    "contract.json": lambda folder: write_contract(folder, {"a": 1}),
    "environment.json": lambda folder: write_contract(folder, {"a": 1}, "environment.json"),
    "protocol.json": lambda folder: Protocol({"a": 1}).write(folder),
    "episodes.jsonl": lambda folder: EvaluationResult(Protocol({}), {}).write(folder),
    "evaluation.json": lambda folder: EvaluationResult(Protocol({}), {}).write(folder, {"metrics": {}}),
    "report.html": lambda folder: Page(folder, EvaluationResult(Protocol({}), {}), {}).write(),
    "metrics.csv": metrics,
    "rollouts/3.jsonl": lambda folder: SampleFolder(folder).write(3, [{"a": 1}]),
    "videos/greedy.mp4": lambda folder: write_video(FRAMES, folder / "videos/greedy.mp4"),
    "videos/greedy.gif": lambda folder: write_video(FRAMES, folder / "videos/greedy.gif"),
    "checkpoints/last.ckpt": lambda folder: write_checkpoint({"state_dict": {}}, folder / "checkpoints/last.ckpt"),
    "config.yaml": lambda folder: write_file(folder / "config.yaml", "a"),
    ".lock": inside,
    "plot.png": lambda folder: _put(folder / "plot.png"),
}


def _put(path):
    with replace_path(path) as file:
        file.write_text("new")


@pytest.mark.parametrize("kind", ["file", "temporary file", "hard link", "broken"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_link_is_not_followed(name, kind, tmp_path):
    outside, folder = tmp_path / "outside.txt", tmp_path / "run"
    outside.write_text(BEFORE)
    place = folder / name
    place.parent.mkdir(parents=True)
    if kind == "temporary file":
        place = place.with_name(f".{place.name}.part")
    if kind == "hard link":
        os.link(outside, place)
    else:
        place.symlink_to(tmp_path / "nothing" if kind == "broken" else outside)
    try:
        WRITERS[name](folder)
    except ConfigError as error:
        assert "link" in str(error) or "run_dir" in str(error)
    else:
        assert kind != "file" or name == "metrics.csv" or not (folder / name).is_symlink()
    assert outside.read_text() == BEFORE
    assert not (tmp_path / "nothing").exists()


def test_folders_that_lead_outside_are_refused(tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    for folder in (run, outside):
        folder.mkdir()
    (run / "videos").symlink_to(outside)
    (run / "inner").symlink_to(run / "real")
    with pytest.raises(ConfigError, match="outside of the run; remove the link"):
        check_inside(run / "videos", run)
    for name in ("inner", "real", "missing"):
        check_inside(run / name, run)


def test_a_folder_of_links_is_replaced(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text(BEFORE)
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").symlink_to(outside / "x")
    (tmp_path / "policy" / "folder").symlink_to(outside)
    for link in (False, True):
        if link:
            (tmp_path / "policy" / "config.json").unlink()
            (tmp_path / "policy").rmdir()
            (tmp_path / "policy").symlink_to(outside)
        with replace_folder(tmp_path / "policy") as folder:
            (folder / "config.json").write_text("{}")
        assert [file.name for file in (tmp_path / "policy").iterdir()] == ["config.json"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "policy"]
    assert [file.name for file in outside.iterdir()] == ["x"] and (outside / "x").read_text() == BEFORE


def test_a_hard_link_is_replaced_by_its_remedy(tmp_path):
    (tmp_path / "outside").write_text("a\n")
    os.link(tmp_path / "outside", tmp_path / "metrics.csv")
    with pytest.raises(ConfigError, match=r"metrics\.csv is a hard link: 1 further names.*put a copy in its place"):
        append_to(tmp_path / "metrics.csv")
    write_file(tmp_path / "metrics.csv", "a\n")
    with append_to(tmp_path / "metrics.csv") as file:
        file.write(b"b\n")
    assert (tmp_path / "metrics.csv").read_text() == "a\nb\n" and (tmp_path / "outside").read_text() == "a\n"


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", "policy", "rollouts", "videos", "plots"])
@pytest.mark.parametrize("resumed", [True, False], ids=["resumed", "new"])
def test_a_folder_of_a_run_that_leads_outside_is_refused(name, resumed, tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    for folder in (run / "checkpoints", outside):
        folder.mkdir(parents=True)
    (run / "checkpoints" / "last.ckpt").write_text(BEFORE)
    if name == "checkpoints":
        (run / name / "last.ckpt").rename(outside / "last.ckpt")
        (run / name).rmdir()
    (run / name).symlink_to(outside)
    checkpoint = str(run / "checkpoints" / "last.ckpt") if resumed else None
    with (
        pytest.raises(ConfigError, match=rf"{name} is a link to .*outside of the run"),
        own_folder(str(run), checkpoint),
    ):
        pass


def test_a_pipe_does_not_hold_a_run_up(tmp_path):
    os.mkfifo(tmp_path / "metrics.csv")
    started = time.monotonic()
    with pytest.raises(ConfigError, match="pipe"):
        append_to(tmp_path / "metrics.csv")
    assert time.monotonic() - started < 60


def test_a_failed_replacement_leaves_the_file(tmp_path):
    for write in (replace_file, replace_path):
        write_file(tmp_path / "a.json", json.dumps({"a": 1}))
        with pytest.raises(RuntimeError), write(tmp_path / "a.json"):
            raise RuntimeError
        assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}
        assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def direct_writes(source: str) -> list[int]:
    """Lines that write a file without the functions of mmrl/files/atomic.py."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
        opens = name == "open" and any(
            isinstance(m, str) and set(m) <= set("rwaxbt+") and set(m) & set("wa+") for m in modes
        )
        if name in ("write_text", "write_bytes") or opens:
            lines.append(node.lineno)
    return lines


def test_what_writes_into_a_run_replaces_files():
    rooms = ("callbacks", "commands", "evaluation", "samples", "runs", "loggers", "rollouts")
    files = [*(file for room in rooms for file in (ROOT / room).rglob("*.py")), ROOT / "files" / "contract.py"]
    elsewhere = {"files.py", "commands/new/files.py", "commands/datasets/inspect.py"}  # not into the folder of a run
    elsewhere.add("runs/checkpoint_file.py")  # parts of an archive
    places = {str(file.relative_to(ROOT)): direct_writes(file.read_text()) for file in files}
    assert {name for name, lines in places.items() if lines} <= elsewhere
    assert direct_writes("p.write_text('')\nopen(p, 'w')\np.open(mode='ab')") == [1, 2, 3]
