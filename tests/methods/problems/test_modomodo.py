"""The quadratic surrogate of pilot runs by hand, tasks drawn by their weights, and the rounds of both."""

import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.commands.rounds.words import build_words
from mmrl.config.compose import compose
from mmrl.core.errors import ConfigError
from mmrl.methods.problems.modomodo import (
    SurrogateMixture,
    WeightedTasks,
    find_best_mixture,
    fit_surrogate,
    list_mixtures,
    predict_score,
    read_pilots,
)
from tests.curricula.test_prioritised import Kinds, at


def write_pilots(folder, names, mixtures, scores):
    """Evaluations of pilots, as `mmrl evaluate` writes them; returns their pattern."""
    for number, (mixture, score) in enumerate(zip(mixtures, scores), start=1):
        pilot = Path(folder) / f"value-{number}"
        pilot.mkdir()
        curriculum = {"class_path": "any", "init_args": {"weights": dict(zip(names, map(float, mixture)))}}
        (pilot / "config.yaml").write_text(yaml.safe_dump({"data": {"init_args": {"curriculum": curriculum}}}))
        metrics = {"last": {"greedy": {"exact": {"mean": float(score), "n": 8}, "scores": {"gold": 2.0 * score}}}}
        (pilot / "evaluation.json").write_text(json.dumps({"metrics": metrics}))
    return f"{folder}/value-*"


def make_surrogate():
    pattern = write_pilots(tempfile.mkdtemp(), ("a", "b"), [[1, 0], [0, 1], [0.5, 0.5]], [0.2, 0.4, 0.5])
    return SurrogateMixture({"a": 0.5, "b": 0.5}, pattern, info_key="kind")


LAWS = [lambda: WeightedTasks({"a": 0.25, "b": 0.75}, "kind"), make_surrogate]

PILOTS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5], [1 / 3] * 3])
SCORES = np.array([0.40, 0.50, 0.30, 0.60, 0.45, 0.42, 0.55])


def test_without_the_uniform_pilot_the_fit_is_exact_by_hand():
    # b is the score of each task alone
    # c_12 = 4 (.60 - .45) = .6, c_13 = 4 (.45 - .35) = .4, c_23 = 4 (.42 - .40) = .08
    assert fit_surrogate(PILOTS[:6], SCORES[:6]) == pytest.approx([0.4, 0.5, 0.3, 0.6, 0.4, 0.08])


def test_seven_pilots_by_hand():
    # the exact fit of six predicts .52 for the uniform one, .03 too little: least squares spreads the residual
    # along the one direction r with X' r = 0, r = (1, 1, 1, -4, -4, -4, 9) / sqrt(132): .27 / 132 = .002045 times it
    out = fit_surrogate(PILOTS, SCORES)
    assert out == pytest.approx([0.397955, 0.497955, 0.297955, 0.640909, 0.440909, 0.120909], abs=1e-6)
    residual = SCORES - predict_score(out, PILOTS)
    assert residual == pytest.approx(0.27 / 132 * np.array([1, 1, 1, -4, -4, -4, 9]))
    mixture, score = find_best_mixture(out, 3)
    # .4 * .397955 + .6 * .497955 + .24 * .640909
    assert mixture == pytest.approx((0.4, 0.6, 0.0)) and score == pytest.approx(0.611773, abs=1e-6)


def test_the_grid_is_the_simplex():
    grid = list(list_mixtures(3, 4))
    assert len(grid) == len(set(grid)) == 15 and all(sum(mixture) == pytest.approx(1) for mixture in grid)
    assert list(list_mixtures(1, 4)) == [(1.0,)]


def test_too_few_pilots_are_refused():
    with pytest.raises(ValueError, match="5 pilot mixtures do not determine 6 coefficients"):
        fit_surrogate(PILOTS[:5], SCORES[:5])
    assert np.isfinite(fit_surrogate(PILOTS[:5], SCORES[:5], ridge=1e-4)).all()
    # one task, two pilots of it: (.4 + .6) / (2 + ridge)
    assert fit_surrogate(np.ones((2, 1)), np.array([0.4, 0.6]), ridge=2.0) == pytest.approx([0.25])


def test_tasks_are_drawn_by_their_weights():
    curriculum, task = WeightedTasks({"push": 0.75, "reach": 0.25}), Kinds(64)  # 16 pushes, 48 reaches
    chosen = [index for i in range(50) for index in curriculum.select(40, at(i, task))]
    pushes = [index for index in chosen if index % 4 == 0]
    assert abs(len(pushes) / 2000 - 0.75) < 4 * (0.75 * 0.25 / 2000) ** 0.5
    assert len(set(pushes[:16])) == 16  # a permutation
    count = Counter(pushes)
    assert max(count.values()) - min(count.values()) <= 1
    alone = WeightedTasks({"push": 1.0, "reach": 0.0}).select(8, at(0, task))
    assert all(index % 4 == 0 for index in alone)


def test_weights_that_are_rounded_are_scaled():
    assert len(WeightedTasks({"push": 0.7500004, "reach": 0.25}).select(8, at(0, Kinds(64)))) == 8


def test_it_goes_on_where_a_saved_one_stands():
    whole, again, task = (
        WeightedTasks({"push": 0.5, "reach": 0.5}),
        WeightedTasks({"push": 0.5, "reach": 0.5}),
        Kinds(64),
    )
    whole.select(10, at(0, task))
    again.load_state_dict(whole.state_dict())
    assert again.select(10, at(1, task)) == whole.select(10, at(1, task))
    for weights in ({}, {"push": 0.5}, {"push": 1.5, "reach": -0.5}):
        with pytest.raises(ValueError, match=r"curriculum\.weights must be"):
            WeightedTasks(weights)
    with pytest.raises(ValueError, match=r"names \['stack'\]"):
        WeightedTasks({"stack": 1.0}).select(1, at(0, task))


def test_the_best_mixture_of_pilots_is_drawn(tmp_path):
    """The seven pilots above, without ridge: four tenths of the first task, six of the second, none of the third."""
    names = ("push", "reach", "stack")
    pattern = write_pilots(tmp_path, names, PILOTS, SCORES)
    report = tmp_path / "surrogate.json"
    weights = dict.fromkeys(names, 1 / 3)
    curriculum = SurrogateMixture(weights, pattern, ridge=0.0, report=str(report))
    assert curriculum.weights == weights  # files are read when the first problems are drawn
    task = Kinds(64)
    curriculum._problems = {"push": list(range(16)), "reach": list(range(16, 40)), "stack": list(range(40, 64))}
    chosen = [index for i in range(40) for index in curriculum.select(50, at(i, task))]
    assert curriculum.weights == pytest.approx({"push": 0.4, "reach": 0.6, "stack": 0.0})
    assert max(chosen) < 40 and abs(sum(index < 16 for index in chosen) / 2000 - 0.4) < 4 * (0.24 / 2000) ** 0.5
    written = json.loads(report.read_text())
    assert written["mixture"] == curriculum.weights and written["predicted"] == pytest.approx(0.611773, abs=1e-6)
    assert written["coefficients"]["push reach"] == pytest.approx(0.640909, abs=1e-6)
    # 1 of 7: r of the test above, for the first pilot
    assert written["pilots"][0]["residual"] == pytest.approx(0.27 / 132) and len(written["pilots"]) == 7


def test_one_process_writes_the_report(tmp_path):
    (tmp_path / "pilots").mkdir()
    pattern = write_pilots(tmp_path / "pilots", ("push", "reach"), np.eye(2), [0.25, 0.5])
    weights, report = {"push": 0.5, "reach": 0.5}, tmp_path / "report.json"
    SurrogateMixture(weights, pattern).select(1, at(0, Kinds(8)))  # none is asked for
    SurrogateMixture(weights, pattern, report=str(report)).select(1, replace(at(0, Kinds(8)), rank=1))
    assert not report.exists()


def test_pilots_are_read_and_a_task_that_one_does_not_name_has_no_weight(tmp_path):
    pattern = write_pilots(tmp_path, ("push",), [[1.0]], [0.25])
    (tmp_path / "value-2").mkdir()
    for name in ("config.yaml", "evaluation.json"):
        text = (tmp_path / "value-1" / name).read_text()
        (tmp_path / "value-2" / name).write_text(text.replace("push", "reach"))
    names, mixtures, scores = read_pilots(pattern, "greedy/scores/gold")
    assert names == ["push", "reach"] and mixtures.tolist() == [[1, 0], [0, 1]] and scores.tolist() == [0.5, 0.5]


def test_pilots_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"curriculum\.pilots=.*none-\*: no such folder"):
        read_pilots(f"{tmp_path}/none-*", "greedy/exact")
    pattern = write_pilots(tmp_path, ("push",), [[1.0]], [0.25])
    with pytest.raises(ConfigError, match=r"has no sampled/exact, by curriculum\.metric; there are \['greedy/exact'"):
        read_pilots(pattern, "sampled/exact")
    other = SurrogateMixture({"reach": 1.0}, pattern)
    with pytest.raises(ConfigError, match=r"weights names \['reach'\], and .* the tasks \['push'\]; name the same"):
        other.select(1, at(0, Kinds(8)))
    (tmp_path / "value-1" / "config.yaml").write_text("data: {}")
    with pytest.raises(ConfigError, match=r"config.yaml has no data\.curriculum\.weights"):
        read_pilots(pattern, "greedy/exact")
    for arguments, message in (({"ridge": -1.0}, "ridge"), ({"steps": 0}, "steps")):
        with pytest.raises(ValueError, match=message):
            SurrogateMixture({"push": 1.0}, pattern, **arguments)


def test_the_rounds_have_the_pilots_of_the_test_and_two_runs_of_one_budget():
    file = read_rounds(["modomodo"])
    steps = {step.name: step for step in list_steps(file)}
    pilots = [
        compose(build_words(file, steps[f"1/pilot-{i}"], Path("run"))).data.curriculum.weights for i in range(1, 8)
    ]
    mixtures = [[pilot[name] for name in ("short", "long", "three")] for pilot in pilots]
    assert sorted(mixtures[:6]) == sorted(PILOTS[:6].tolist()) and max(mixtures[6]) < 0.35
    # an evaluation names the mixture of its pilot, since the surrogate reads it there
    values = [
        compose(build_words(file, steps[f"1/value-{i}"], Path("run"))).data.curriculum.weights for i in range(1, 8)
    ]
    assert values == pilots and [steps[f"1/value-{i}"].weights for i in range(1, 8)] == [
        f"1/pilot-{i}" for i in range(1, 8)
    ]
    uniform, best = (compose(build_words(file, steps[f"1/{name}"], Path("run"))) for name in ("uniform", "best"))
    assert best.data.curriculum.pilots == "run/1/value-7/../value-*"
    assert best.data.curriculum._target_.endswith("SurrogateMixture")
    for each in (uniform, best):
        each.data.curriculum = each.run_dir = None
    assert uniform == best and {steps[f"1/{name}"].weights for name in ("uniform", "best")} == {"0/base_policy"}
    # scored are the formats of the mixture and two that RL does not see
    measured = compose(build_words(file, steps["1/measure"], Path("run"))).data
    assert set(uniform.data.task.parts) == {"short", "long", "three"}
    assert set(measured.task.parts) == {"short", "long", "three", "two_one", "one_two"}
    assert sum(measured.task.held_out.values()) == steps["1/measure"].stage.count == steps["1/value-1"].stage.count
