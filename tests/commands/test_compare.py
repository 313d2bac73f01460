"""Groups of runs over seeds: means, intervals, differences, and what cannot be compared."""

import csv
import math
from pathlib import Path

import pytest
import yaml
from scipy import stats

from mmrl.__main__ import main
from mmrl.commands.results.compare import compare
from mmrl.core.errors import ConfigError
from mmrl.evaluation.statistics.seeds import read_group

METRIC = "val/greedy/exact/mean"
EVALUATION = {"sampling": {"greedy": {}}, "evaluators": {"exact": {}}, "count": 512}


def write_run(folder: Path, seed: int, values: dict[int, float], lr: float = 1e-3, **evaluation: object) -> Path:
    """The files of a finished run that are read: configuration and metrics."""
    folder.mkdir(parents=True)
    data = {"task": {}, "evaluation": {"init_args": {**EVALUATION, **evaluation}}, "seed": seed}
    callback = {"init_args": {"run_dir": str(folder), "common": ["task=arithmetic", f"seed={seed}"]}}
    config = {
        "seed_everything": seed,
        "run_dir": str(folder),
        "data": {"init_args": data},
        "model": {"lr": lr},
        "trainer": {"callbacks": [callback]},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["iterations", "rollout/reward", METRIC, "val/greedy/exact/lower", "val/greedy/exact/upper"])
        for iteration, value in values.items():
            writer.writerow([iteration, value / 2, value, value - 0.1, value + 0.1])
            writer.writerow([iteration + 1, value / 2, "", "", ""])
    return folder


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, end in enumerate((0.5, 0.6, 0.7)):
        write_run(Path("a") / str(seed), seed, {0: 0.1, 5: 0.3, 10: end})
        write_run(Path("b") / str(seed), seed, {0: 0.1, 5: 0.4, 10: end + 0.1 + 0.01 * seed}, lr=1e-2)
    return tmp_path


def cells(line: str) -> list[str]:
    return [cell for cell in line.split("  ") if cell]


def test_the_table_has_the_means_and_intervals_over_seeds(runs, capsys):
    assert main(["compare", "a", "b"]) == 0
    head, first, second, plot = capsys.readouterr().out.splitlines()
    values = (0.5, 0.6, 0.7)
    low, high = stats.t.interval(0.95, 2, loc=0.6, scale=stats.sem(values))
    assert METRIC in head and cells(first)[:4] == ["a", "0,1,2", "10", "0.6"]
    assert cells(first)[4].strip() == f"[{low:.4g}, {high:.4g}]"
    differences = (0.1, 0.11, 0.12)
    low, high = stats.t.interval(0.95, 2, loc=0.11, scale=stats.sem(differences))
    assert second.rstrip().endswith(f"+0.11 [{low:.4g}, {high:.4g}]")
    assert plot == "plot: compare.png" and (runs / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_a_group_is_a_run_a_folder_or_a_pattern(runs, capsys):
    assert [run.seed for run in read_group("a/*").runs] == [run.seed for run in read_group("a").runs] == [0, 1, 2]
    compare(["a/1", "b/[01]", "metric=greedy/exact/mean", "out=plots/one.png", "level=0.9"])
    shown = capsys.readouterr().out
    assert "note: a/1: one seed; the interval is the evaluator's, over held-out problems" in shown
    assert "[0.5, 0.7]" in shown and "b/[01]" in shown and (runs / "plots" / "one.png").is_file()
    compare(["a", "metric=rollout/reward"])
    assert "0.3 " in capsys.readouterr().out


def test_seeds_have_a_mean_where_all_of_them_were_measured(runs, capsys):
    write_run(Path("a/3"), 3, {0: 0.1, 5: 0.3, 7: 0.4})
    curve = read_group("a").mean_curve(METRIC)
    assert [x for x, *_ in curve] == [0, 5] and curve[1][1] == pytest.approx(0.3)
    assert curve[1][2:] == pytest.approx((0.3, 0.3))
    compare(["a", "b"])
    shown = capsys.readouterr().out
    assert "7 to 10" in shown and "note: a: its seeds have ended at different iterations" in shown
    assert "0.11 [" not in shown  # other seeds are not paired


def test_groups_that_are_measured_otherwise_are_named(runs, capsys):
    write_run(Path("c"), 0, {0: 0.1, 10: 0.9}, count=64)
    compare(["a", "c"])
    assert "note: c is measured otherwise than a: data.init_args.evaluation.init_args.count" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "give groups of runs"),
        (["metric="], "give groups of runs"),
        (["none"], "none: no run; give a run's folder"),
        (["none/*"], r"none/\*: no run"),
        (["a", "out=plot.svg"], "out=plot.svg: the plot is a PNG"),
        (["a", "level=95"], "level=95: the level of the intervals"),
        (["a", "level=nan"], "level=nan"),
        (["a", "metric=nothing"], "metric=nothing: a/0 has no such metric; it has val/greedy/exact/lower"),
        (["mixed"], "differ in more than the seed: model.lr; give each setting as a group of its own"),
        (["twice"], "several runs have seed=1"),
        (["empty"], "empty/0: the run has no metrics.csv"),
        (["broken"], "broken/0: metrics.csv or config.yaml cannot be read"),
        (["a", "lacking"], "lacking/0 has no such metric"),
        (["nan"], "no such metric"),
        (["apart"], "apart: no iteration at which all seeds have val/greedy/exact/mean"),
        (["unmeasured"], "unmeasured has measured nothing on held-out problems"),
        (["strange"], "not the configuration of a run"),
    ],
)
def test_what_cannot_be_compared_is_refused(words, message, runs):
    write_run(Path("mixed/0"), 0, {0: 0.1})
    write_run(Path("mixed/1"), 1, {0: 0.1}, lr=1e-2)
    write_run(Path("twice/0"), 1, {0: 0.1})
    write_run(Path("twice/1"), 1, {0: 0.1})
    write_run(Path("empty/0"), 0, {0: 0.1})
    Path("empty/0/metrics.csv").unlink()
    write_run(Path("broken/0"), 0, {0: 0.1})
    Path("broken/0/metrics.csv").write_text("iterations,x\n1,two\n")
    write_run(Path("lacking/0"), 0, {0: 0.1})
    Path("lacking/0/metrics.csv").write_text("iterations,rollout/reward\n1,2\n")
    write_run(Path("nan/0"), 0, {0: math.nan})
    write_run(Path("apart/0"), 0, {0: 0.1})
    write_run(Path("apart/1"), 1, {4: 0.1})
    write_run(Path("unmeasured"), 0, {0: 0.1}, sampling={})
    write_run(Path("strange"), 0, {0: 0.1})
    Path("strange/config.yaml").write_text("- a list\n")
    with pytest.raises(ConfigError, match=message):
        compare(words)


def write_tasks(folder: Path, seed: int, start: dict[str, float], end: dict[str, float], lr: float) -> None:
    """Add the held-out rates of several tasks, before and after, to a run."""
    write_run(folder, seed, {0: 0.1}, lr=lr)
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["iterations", METRIC, *(f"val/greedy/tasks/{task}/mean" for task in start)])
        writer.writerow([0, 0.1, *start.values()])
        writer.writerow([10, 0.2, *end.values()])


def test_interference_is_the_change_of_every_task_by_every_group(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        write_tasks(Path("a") / str(seed), seed, {"x": 0.5, "y": 0.5}, {"x": 0.75 + 0.1 * seed, "y": 0.25}, 1e-3)
    write_tasks(Path("b"), 0, {"x": 0.5, "y": 0.25}, {"x": 0.25, "y": 1.0}, 1e-2)
    assert main(["compare", "a", "b", "tasks=val/greedy/tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("change of"))
    low, high = stats.t.interval(0.95, 1, loc=0.3, scale=stats.sem((0.25, 0.35)))
    assert [cell.strip() for cell in cells(lines[place])] == ["change of", "x", "y"]
    assert [cell.strip() for cell in cells(lines[place + 1])] == ["a", f"+0.3 [{low:.4g}, {high:.4g}]", "-0.25"]
    assert [cell.strip() for cell in cells(lines[place + 2])] == ["b", "-0.25", "+0.75"]


def test_interference_needs_the_same_tasks_and_two_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tasks(Path("a"), 0, {"x": 0.5}, {"x": 0.6}, 1e-3)
    write_tasks(Path("b"), 0, {"y": 0.5}, {"y": 0.6}, 1e-2)
    with pytest.raises(ConfigError, match=r"has no column val/other/TASK/mean; .*evaluation=suite"):
        compare(["a", "tasks=val/other"])
    with pytest.raises(ConfigError, match="b has other tasks than a"):
        compare(["a", "b", "tasks=val/greedy/tasks"])
    path = Path("a/metrics.csv")
    path.write_text("\n".join(path.read_text().splitlines()[:2]) + "\n")
    with pytest.raises(ConfigError, match="has 1 values of val/greedy/tasks/x/mean"):
        compare(["a", "tasks=val/greedy/tasks"])
