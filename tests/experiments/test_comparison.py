"""Comparisons of many recipes on several tasks: which runs are missing, what is stored, and the page."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import PIL.Image
import pytest

from mmrl.config.compose import compose
from mmrl.core.errors import ConfigError
from mmrl.experiments import comparison as comparisons
from mmrl.experiments.comparison import (
    ComparedTask,
    Comparison,
    Tuning,
    check_starts,
    choose_value,
    read_cells,
    write_cells,
)
from mmrl.experiments.comparison_page import format_page, paired_differences, plot_comparison
from mmrl.experiments.comparison_runs import list_missing, measure_run, run_comparison
from mmrl.experiments.effect import student_interval
from mmrl.experiments.runner import RunFailed, describe_machine, read_reason

METRIC = "val/greedy/exact/mean"
SMALL = Comparison(
    name="small",
    title="Two methods",
    reference="GRPO",
    seeds=2,
    overrides=["trainer.max_epochs=2"],
    tasks={name: ComparedTask(f"Task {name}", METRIC, [f"task={name}"]) for name in ("arithmetic", "digits")},
    methods={"GRPO": ["recipe=grpo"], "PPO": ["data.num_prompts=64", "recipe=ppo_text"]},
)


def row(seed, after, before=0.25):
    return {"seed": seed, "before": before, "after": after, "episodes": 8, "tokens": 2000.0, "seconds": 3.0}


@dataclass
class Ended:
    """A run that has ended, in the place of a SeedRun."""

    recipe: str
    seed: int
    content: str
    rows: list
    reason: str = ""
    value: float | None = None
    side: str = "seeds"
    folder: Path = Path("no such folder")

    def __call__(self):
        if not self.rows:
            raise RunFailed("the fit failed; see its log", self.reason)
        return {"rows": self.rows, "seconds": 60.0, "seed": self.seed}


def test_words_of_the_method_come_last_and_its_recipe_first():
    words = SMALL.words("digits", "PPO")
    assert words == ["recipe=ppo_text", "trainer.max_epochs=2", "task=digits", "data.num_prompts=64"]


def test_a_reference_that_is_no_method_and_an_unknown_name_are_refused():
    with pytest.raises(ConfigError, match="reference 'RLOO' is none of the methods"):
        replace(SMALL, reference="RLOO")
    with pytest.raises(ConfigError, match=r"no comparison 'none'; there are \[.*'credit'"):
        comparisons.read_comparison("none")


def test_stored_runs_are_missing_when_the_code_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "hash_content", " ".join)
    cells = {name: {} for name in SMALL.tasks}
    metric = SMALL.tasks["digits"].metric
    cells["digits"]["PPO"] = {
        "content": " ".join(SMALL.words("digits", "PPO")),
        "metric": metric,
        "seeds": [row(0, 0.5)],
    }
    cells["digits"]["GRPO"] = {"content": "older", "metric": metric, "seeds": [row(0, 0.5), row(1, 0.5)]}
    write_cells(SMALL, cells, "2 cores", tmp_path)
    current = read_cells(SMALL, tmp_path)
    assert current == {"arithmetic": {}, "digits": {"PPO": cells["digits"]["PPO"]}}
    other = replace(SMALL, tasks={**SMALL.tasks, "digits": replace(SMALL.tasks["digits"], metric="val/other/mean")})
    assert read_cells(other, tmp_path)["digits"] == {}
    missing = [(run.recipe, run.seed) for run in list_missing(SMALL, current, range(2), tmp_path)]
    every = [(f"{task}/{method}", seed) for seed in range(2) for task in SMALL.tasks for method in SMALL.methods]
    assert missing == [each for each in every if each != ("digits/PPO", 0)]


def test_each_run_is_stored_when_it_has_ended_and_a_failed_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "hash_content", " ".join)
    content = " ".join(SMALL.words("digits", "PPO"))
    count = METRIC.replace("mean", "n")
    mean, episodes = "rollout/tokens_mean", "rollout/episodes_collected"
    rows = [{METRIC: "0.25", count: "8"}, {mean: "3.5", episodes: "20", "time/iteration": "1.5"}]
    rows += [{mean: "3", episodes: "10", "time/iteration": "2"}, {METRIC: "0.75", count: "8"}]
    runs = [
        Ended("digits/PPO", 1, content, rows),
        Ended("digits/PPO", 0, content, rows),
        Ended("digits/GRPO", 0, "", []),
    ]
    said = []
    errors = run_comparison(SMALL, runs, 1, tmp_path, lambda run, error: said.append(error))
    assert errors == {"digits/GRPO": "the fit failed; see its log"} and said.count(None) == 2
    cell = read_cells(SMALL, tmp_path)["digits"]["PPO"]
    expected = row(0, 0.75) | {"tokens": 100.0, "seconds": 3.5}
    assert cell["seeds"] == [expected, expected | {"seed": 1}]
    assert json.loads((tmp_path / "comparisons" / "small.json").read_text())["machine"] == describe_machine(1)


TUNED = replace(SMALL, tuning=Tuning("optimizer.lr", [0.1, 0.01], seed=100), diagnostics={"KL": "train/kl/mean"})


def test_the_seeds_of_a_tuned_method_come_after_its_search_and_have_the_value_that_ended_highest(tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "hash_content", " ".join)
    monkeypatch.setattr("mmrl.experiments.comparison_runs.hash_content", " ".join)
    nothing = {task: {} for task in TUNED.tasks}
    searches = list(list_missing(TUNED, nothing, range(2), tmp_path))
    assert {(run.side, run.seed) for run in searches} == {("tuning", 100)} and len(searches) == 2 * 2 * 2
    assert [run.overrides[-1] for run in searches[:2]] == ["optimizer.lr=0.1", "optimizer.lr=0.01"]
    assert len({run.folder for run in searches}) == 8

    start = {METRIC: "0.25", METRIC.replace("mean", "n"): "8"}
    ends = [("GRPO", 0.1, "0.5"), ("GRPO", 0.01, "0.75"), ("PPO", 0.1, "0.5"), ("PPO", 0.01, "0.5")]
    runs = [
        Ended(
            f"digits/{method}",
            100,
            " ".join(TUNED.words("digits", method)),
            [start, {METRIC: after, "train/kl/mean": "2"}],
            value=value,
            side="tuning",
        )
        for method, value, after in ends
    ]
    runs.append(Ended("arithmetic/PPO", 100, " ".join(TUNED.words("arithmetic", "PPO")), [], "diverged", 0.1, "tuning"))
    run_comparison(TUNED, runs, 1, tmp_path, lambda run, error: None)
    cells = read_cells(TUNED, tmp_path)
    assert choose_value(TUNED.tuning, cells["digits"]["GRPO"]) == 0.01
    assert choose_value(TUNED.tuning, cells["digits"]["PPO"]) == 0.1  # the first of equal ones
    assert cells["arithmetic"]["PPO"]["tuning"] == [{"seed": 100, "error": "diverged", "value": 0.1}]
    missing = [(run.recipe, run.side, run.seed, run.value) for run in list_missing(TUNED, cells, range(2), tmp_path)]
    assert ("arithmetic/PPO", "tuning", 100, 0.01) in missing and ("arithmetic/PPO", "tuning", 100, 0.1) not in missing
    seeds = {run for run in missing if run[1] == "seeds"}
    expected = {("digits/GRPO", 0.01), ("digits/PPO", 0.1)}
    assert seeds == {(recipe, "seeds", seed, value) for recipe, value in expected for seed in range(2)}


def test_runs_with_a_value_that_the_search_no_longer_chooses_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "hash_content", " ".join)
    search = [row(100, 0.5) | {"value": 0.1}, row(100, 0.75) | {"value": 0.01}]
    cell = {
        "content": " ".join(TUNED.words("digits", "GRPO")),
        "metric": METRIC,
        "tuning": search,
        "seeds": [row(0, 0.5) | {"value": 0.1}, row(1, 0.5) | {"value": 0.01, "diagnostics": {"KL": 0.125}}],
    }
    write_cells(TUNED, {"digits": {"GRPO": cell}}, "2 cores", tmp_path)
    cells = read_cells(TUNED, tmp_path)
    assert [each["seed"] for each in cells["digits"]["GRPO"]["seeds"]] == [1]
    page = format_page(TUNED, cells)
    assert "own optimizer.lr: that of 0.1 and 0.01 which ended highest on seed 100" in page.replace("\n", " ")
    assert "| seconds | KL | lr |" in page and "| GRPO | 25 | 50 |  | 1 | 2 | 3 | 0.12 | 0.01 |" in page
    longer = replace(TUNED, tuning=Tuning("optimizer.lr", [0.1, 0.01, 1.0], seed=100))
    assert choose_value(longer.tuning, cells["digits"]["GRPO"]) is None  # 1.0 has not been tried
    other = replace(TUNED, tuning=Tuning("optimizer.lr", [0.1, 0.01], seed=101))
    assert read_cells(other, tmp_path)["digits"]["GRPO"]["tuning"] == []


def test_a_search_on_a_reported_seed_and_a_diagnostic_that_is_not_logged_are_refused():
    with pytest.raises(ConfigError, match="seed 1 is one of the 2 that are reported"):
        replace(SMALL, tuning=Tuning("optimizer.lr", [0.1], seed=1))
    for values in ([], ["2e-4"]):  # YAML reads 2e-4, without a point, as text
        with pytest.raises(ConfigError, match=r"must be numbers such as 2\.0e-4"):
            replace(SMALL, tuning=Tuning("optimizer.lr", values, seed=100))
    rows = [{METRIC: "0.25", METRIC.replace("mean", "n"): "8"}] * 2
    with pytest.raises(ConfigError, match="no value in column train/kl/mean"):
        measure_run({"rows": rows, "seed": 0, "seconds": 1.0}, METRIC, {"KL": "train/kl/mean"})


def test_the_weights_of_a_run_are_removed_when_it_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "hash_content", " ".join)
    content, folder = " ".join(SMALL.words("digits", "PPO")), tmp_path / "run"
    for file in ("checkpoints/last.ckpt", "policy/model.safetensors", "metrics.csv", "receipt.json"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    ended = [{METRIC: "0.25", METRIC.replace("mean", "n"): "8"}] * 2
    for rows, left in (([], 4), (ended, 2)):  # a run that failed keeps what it has
        run_comparison(SMALL, [Ended("digits/PPO", 0, content, rows, folder=folder)], 1, tmp_path, lambda run, error: 0)
        assert len(list(folder.iterdir())) == left


def test_an_error_of_a_seed_is_reported_for_that_seed_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "hash_content", " ".join)
    content = " ".join(SMALL.words("digits", "PPO"))
    ended = [{METRIC: "0.25", METRIC.replace("mean", "n"): "8"}] * 2
    runs = [Ended("digits/PPO", seed, content, ended if seed else []) for seed in range(3)]
    said = {}
    run_comparison(SMALL, runs, 1, tmp_path, lambda run, error: said.update({run.seed: error}))
    assert said == {0: "the fit failed; see its log", 1: None, 2: None}


def test_a_run_that_ended_with_an_error_is_stored_and_named_and_one_that_was_killed_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "hash_content", " ".join)
    content = " ".join(SMALL.words("digits", "PPO"))
    runs = [
        Ended("digits/PPO", 0, content, [], "no episode to learn from. What to try: more"),
        Ended("digits/PPO", 1, content, []),
    ]
    assert len(run_comparison(SMALL, runs, 1, tmp_path, lambda run, error: None)) == 1
    cells = read_cells(SMALL, tmp_path)
    assert cells["digits"]["PPO"]["failed"] == [{"seed": 0, "error": "no episode to learn from. What to try: more"}]
    missing = {(run.recipe, run.seed) for run in list_missing(SMALL, cells, range(2), tmp_path)}
    assert ("digits/PPO", 1) in missing and ("digits/PPO", 0) not in missing
    cells["digits"]["PPO"]["seeds"] = [row(1, 0.5)]
    page = format_page(SMALL, cells)
    assert "| PPO | 25 | 50 |  | 1, 1 failed | 2 | 3 |" in page
    assert "Failed:\n\n- PPO, seed 0: no episode to learn from.\n" in page


@pytest.mark.parametrize(
    "last, reason",
    [
        ("mmrl fit: no episode", "no episode"),
        ("mmrl fit: stopped by SIGTERM; resume with: ...", ""),
        ("mmrl fit: run/start.ckpt: No space left on device, so the checkpoint was not written", ""),
        ("Killed", ""),
        ("", ""),
    ],
)
def test_the_reason_of_a_failed_run_is_what_mmrl_fit_said(tmp_path, last, reason):
    (tmp_path / "run.log").write_text(f"iteration 1\n{last}\n")
    assert read_reason(tmp_path / "run.log") == reason


def test_the_page_has_paired_intervals_and_says_what_was_not_run(tmp_path):
    grpo, ppo = [row(0, 0.5), row(1, 0.7), row(2, 0.6)], [row(1, 0.8), row(2, 0.8) | {"seconds": 60.0}]
    assert paired_differences(ppo, grpo) == pytest.approx([0.1, 0.2])
    cells = {"arithmetic": {}, "digits": {"GRPO": {"seeds": grpo}, "PPO": {"seeds": ppo}}}
    page = format_page(SMALL, cells)
    low, high = student_interval([0.1, 0.2])
    assert f"| PPO | 25 | 80 [80, 80] | +15 [{100 * low:+.0f}, {100 * high:+.0f}] | 2 | 2 | 3 |" in page
    assert "| GRPO | 25 | 60 [" in page and page.count("| PPO | not run |") == 1
    assert "\nBoth learn.\n\n## arithmetic" in format_page(replace(SMALL, explanation="Both learn."), cells)
    with PIL.Image.open(plot_comparison(SMALL, cells, tmp_path / "figure.png")) as one:
        assert one.size[0] < 500  # a panel, since the other task has no runs
    cells["arithmetic"] = cells["digits"]
    with PIL.Image.open(plot_comparison(SMALL, cells, tmp_path / "figure.png")) as two:
        assert two.size[0] > 800


@pytest.mark.parametrize("name", sorted(file.stem for file in comparisons.FOLDER.glob("*.yaml")))
def test_a_comparison_gives_every_method_one_budget_and_its_page_is_current(name):
    """Where the page is not: python scripts/reproduce.py --table NAME --only none."""
    comparison = comparisons.read_comparison(name)
    task = next(iter(comparison.tasks))
    configs = [compose(comparison.words(task, method)) for method in comparison.methods]
    sizes = ("num_prompts", "group_size", "update_epochs", "num_minibatches", "max_empty_iterations")
    budgets = {
        (*(config.data[name] for name in sizes), config.trainer.max_epochs, config.model.optimizer.lr)
        for config in configs
    }
    assert len(budgets) == 1, budgets
    assert not any(
        "DynamicSampling" in str(config.data.transforms) for config in configs
    )  # samples further completions
    assert all(config.trainer.max_epochs % config.trainer.check_val_every_n_epoch == 0 for config in configs)
    assert all(config.data.max_empty_iterations > config.trainer.max_epochs for config in configs)
    if comparison.tuning:
        tuning = comparison.tuning
        compose([*comparison.words(task, comparison.reference), f"{tuning.key}={tuning.values[0]:g}"])
    page = Path(comparisons.RESULTS.parent / "comparisons" / f"{name}.md")
    cells = read_cells(comparison)
    assert page.read_text() == format_page(comparison, cells)
    check_starts(comparison, cells)


def test_runs_of_a_seed_that_start_apart_are_refused():
    cells = {"arithmetic": {"GRPO": {"seeds": [row(0, 0.5), row(1, 0.5, before=0.375)]}}, "digits": {}}
    cells["arithmetic"]["PPO"] = {"seeds": [row(0, 0.75)]}
    check_starts(SMALL, cells)
    cells["arithmetic"]["PPO"]["seeds"].append(row(1, 0.75))
    with pytest.raises(ConfigError, match=r"task arithmetic, seed 1: GRPO starts at 0\.375 and PPO at 0\.25"):
        check_starts(SMALL, cells)
