"""Every tracker holds the numbers of metrics.csv, the configuration, the samples and a video; without a network."""

import csv
import importlib.util
import json
import struct
import time
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.installation.optional_packages import require_packages
from mmrl.loggers.base import COLUMNS, keep_run_id, read_run_id, sample_rows
from mmrl.samples.folder import SampleFolder
from tests.tiny_recipes import words


@pytest.fixture
def run(tmp_path):
    """Trains two iterations with a logger, and sends it a video; returns the run's folder and that logger."""

    def train(logger: str, *more: str):
        given = [word for word in words(tmp_path, "trainer.max_epochs=2") if word != "trainer.logger=false"]
        cli = CLI(to_lightning(compose([*given, f"logger={logger}", *more])))
        cli.fit()
        (made,) = (each for each in cli.trainer.loggers if hasattr(each, "log_samples"))
        file = tmp_path / "clip.mp4"
        imageio.imwrite(file, np.zeros((4, 32, 48, 3), dtype=np.uint8), fps=5)
        made.log_video("clip", file, 2)
        made.finalize("success")
        return tmp_path, made

    return train


def metrics_of(folder: Path) -> dict[str, list[float]]:
    """Values of each column of metrics.csv in order of time."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows if row[name]] for name in rows[0] if name != "step"}


def completions_of(folder: Path) -> list[str]:
    samples = SampleFolder(folder)
    return [row[4] for iteration in samples.iterations() for row in sample_rows(samples.read(iteration))]


def assert_holds(found: dict[str, list[float]], folder: Path) -> None:
    for name, values in metrics_of(folder).items():
        assert found[name] == pytest.approx(values, rel=1e-6), name


def test_tensorboard(run):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder, _ = run("tensorboard")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert_holds({name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}, folder)
    assert "class_path" in (folder / "tensorboard" / "hparams.yaml").read_text()
    table = b"".join(event.tensor_proto.string_val[0] for event in events.Tensors("samples/text_summary")).decode()
    assert table.count("\n") == len(completions_of(folder)) + 2
    assert events.Images("clip")[0].encoded_image_string.startswith(b"GIF89a")


def test_csv_is_metrics_csv_alone(tmp_path):
    given = [word for word in words(tmp_path, "trainer.max_epochs=1") if word != "trainer.logger=false"]
    cli = CLI(to_lightning(compose([*given, "logger=csv"])))
    assert [type(logger).__name__ for logger in cli.trainer.loggers] == ["MetricsCSV"]


def test_wandb_offline(run, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_SILENT", "true")
    folder, logger = run("wandb", "trainer.logger.wandb.offline=true")
    logger.experiment.finish()
    (place,) = (folder / "wandb").glob("offline-run-*")
    found, config = {}, ""
    file, until, records = next(place.glob("*.wandb")), time.monotonic() + 60, []
    while not any(record.HasField("exit") for record in records) and time.monotonic() < until:
        time.sleep(0.1)  # a process of its own writes the file
        records = [Record.FromString(content) for content in _log_records(file.read_bytes())]
    for record in records:
        for item in record.history.item:
            value = json.loads(item.value_json)
            if isinstance(value, int | float):
                found.setdefault(item.key or "/".join(item.nested_key), []).append(value)
        config += "".join(str(update) for update in (*record.config.update, *record.run.config.update))
    assert_holds(found, folder)
    assert "mmrl.learners.learner.Learner" in config or "CapturedLearner" in config
    tables = [json.loads(file.read_text()) for file in sorted((place / "files" / "media" / "table").glob("*.json"))]
    assert tables[0]["columns"] == [*COLUMNS, "image"]
    assert sorted(row[4] for table in tables for row in table["data"]) == sorted(completions_of(folder))
    assert list((place / "files" / "media" / "videos").glob("clip*.mp4"))


def test_a_resumed_run_goes_on_under_the_id_of_its_first_part(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    given = [word for word in words(tmp_path) if word != "trainer.logger=false"]
    given += ["logger=wandb", "trainer.logger.wandb.offline=true"]
    last = f"ckpt_path={tmp_path}/checkpoints/last.ckpt"
    for more in (["trainer.max_epochs=1"], ["trainer.max_epochs=2", last]):
        assert main(["fit", *given, *more]) == 0
        wandb.finish()
    ids = [place.name.rpartition("-")[2] for place in (tmp_path / "wandb").glob("offline-run-*")]
    assert len(ids) == 2 and len(set(ids)) == 1 and ids[0] == read_run_id(tmp_path)


def test_a_resumed_run_goes_on_in_the_run_of_mlflow_and_trackio(tmp_path, monkeypatch):
    """Whichever of the two is installed: one run, with the metrics of both parts."""
    runs = {}
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in filter(importlib.util.find_spec, ("mlflow", "trackio")):
        folder = tmp_path / f"run_{name}"
        given = [word for word in words(folder) if word != "trainer.logger=false"] + [f"logger={name}"]
        last = f"ckpt_path={folder}/checkpoints/last.ckpt"
        for more in (["trainer.max_epochs=1"], ["trainer.max_epochs=2", last]):
            assert main(["fit", *given, *more]) == 0
            runs.setdefault(name, []).append(read_run_id(folder / name))
    for ids in runs.values():
        assert len(ids) == 2 and ids[0] is not None and ids[0] == ids[1]
    if "mlflow" in runs:
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{tmp_path / 'run_mlflow' / 'mlflow' / 'mlflow.db'}")
        (found,) = client.search_runs([client.get_experiment_by_name("mmrl").experiment_id])
        steps = [each.value for each in client.get_metric_history(found.info.run_id, "iterations")]
        assert max(steps) == 2 and 1 in steps
    if "trackio" in runs:
        from trackio.sqlite_storage import SQLiteStorage

        assert SQLiteStorage.get_runs("mmrl") == [runs["trackio"][0]]


def test_the_id_of_a_run_is_kept_in_its_folder(tmp_path):
    assert read_run_id(tmp_path) is None
    keep_run_id(tmp_path / "run", "ab12")
    assert read_run_id(tmp_path / "run") == "ab12"


def _log_records(content: bytes):
    """Records of a LevelDB log behind W&B's header of seven bytes."""
    place, parts, block = 7, b"", 32768
    while place + 7 <= len(content):
        left = block - place % block
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield parts
            parts = b""


def test_mlflow_in_a_file(run):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    folder, logger = run("mlflow")
    client = logger.experiment
    names = client.get_run(logger.run_id).data.metrics
    history = {name: client.get_metric_history(logger.run_id, name) for name in names}
    assert_holds({name: [each.value for each in values] for name, values in history.items()}, folder)
    assert any("init_args" in name for name in client.get_run(logger.run_id).data.params)
    (table,) = (folder / "mlflow" / "artifacts").rglob("samples.json")
    stored = json.loads(table.read_text())
    at = stored["columns"].index("completion")
    assert [row[at] for row in stored["data"]] == completions_of(folder)
    assert list((folder / "mlflow" / "artifacts").rglob("videos/clip/clip.mp4"))


def test_trackio_on_this_machine(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    folder, _ = run("trackio", "trainer.logger.trackio.run_name=mine")
    rows = SQLiteStorage.get_logs("mmrl", "mine")
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    assert_holds(found, folder)
    assert SQLiteStorage.get_run_config("mmrl", "mine")["data"]["init_args"]["num_prompts"] == 6
    text = json.dumps(rows)
    assert all(json.dumps(completion)[1:-1] in text for completion in completions_of(folder))
    assert "trackio.video" in text


@pytest.mark.parametrize("logger", ["wandb", "mlflow", "trackio"])
def test_a_missing_package_is_one_line_with_its_command(logger, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"logger={logger} needs the package {logger}: pip install '.*\[{logger}\]'"):
        require_packages([logger], f"logger={logger}")
