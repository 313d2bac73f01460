"""The files of conf/rounds: their header, their stages, and each of them at a tiny size."""

from dataclasses import replace

import pytest
import torch
import yaml

from mmrl.commands.rounds.checks import check_steps
from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.receipts import read_receipt
from mmrl.commands.rounds.schedule import list_steps
from mmrl.commands.rounds.words import build_words
from mmrl.config.option_files import find_options
from mmrl.runs.checkpoint_file import read_checkpoint
from tests.checkpoints import qwen2
from tests.commands.rounds.tiny import COMMON, run_rounds
from tests.runs.processes import start
from tests.test_methods import HEADER, STATUS

FILES = {name: file.path for name, file in find_options()["rounds"].items() if not file.origin}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_a_header_and_steps(name):
    values = yaml.safe_load(FILES[name].read_text())
    assert set(values["paper"]) == HEADER and values["paper"]["status"] in STATUS and all(values["paper"].values())
    steps = list_steps(read_rounds([name]))
    kinds = {step.kind for step in steps}
    assert {"fit", "evaluate"} <= kinds  # a fit may sample by itself, as agents do
    assert FILES[name].read_text().startswith("# ")


@pytest.mark.parametrize("name", FILES)
def test_every_stage_of_a_file_is_a_run(name, tmp_path):
    file = read_rounds([name])
    check_steps(file, list_steps(file), tmp_path / "run")


BASELINES = [(name, other) for name in FILES for other in read_rounds([name]).values.get("baselines", {})]


@pytest.mark.parametrize(("name", "baseline"), BASELINES)
def test_a_baseline_has_the_same_samples_evaluations_and_number_of_fits(name, baseline, tmp_path):
    file = read_rounds([name])
    other = read_rounds([name, *file.values["baselines"][baseline]])
    steps, others = list_steps(file), list_steps(other)
    check_steps(other, others, tmp_path / "run")
    assert [step.name for step in steps] == [step.name for step in others]
    for one, two in zip(steps, others):
        if one.kind == "sample":  # how it samples may differ, but not what and how often
            assert replace(one.stage, overrides=[]) == replace(two.stage, overrides=[])
        assert one.kind != "evaluate" or one.stage == two.stage
    assert steps != others


def test_the_thresholds_of_rest_rise_and_its_learning_rates_fall():
    steps = list_steps(read_rounds(["rest"]))
    thresholds = [step.stage.min["reward"] for step in steps if step.stage_name == "keep" and step.round == 1]
    rates = [word for step in steps if step.name.startswith("1/fit") for word in step.stage.overrides if "lr=" in word]
    assert thresholds == sorted(set(thresholds)) and thresholds[0] == 0
    numbers = [float(word.partition("=")[2]) for word in rates]
    assert numbers == sorted(set(numbers), reverse=True) and len(numbers) == len(thresholds)


def test_star_fine_tunes_the_base_and_samples_with_the_newest_weights():
    steps = {step.name: step for step in list_steps(read_rounds(["star"]))}
    assert steps["3/fit"].weights == "0/base_policy" and steps["3/grow"].weights == "2/fit"


def test_tulu3_pairs_answers_of_two_policies():
    steps = {step.name: step for step in list_steps(read_rounds(["tulu3"]))}
    assert steps["1/pairs"].reads == ("1/on_policy", "1/off_policy")
    assert (steps["1/on_policy"].weights, steps["1/off_policy"].weights) == ("1/sft", "0/weak")
    assert [steps[name].weights for name in ("1/dpo", "1/rlvr")] == ["1/sft", "1/dpo"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["star", "rft", "iterated_dpo", "uni_moe"])
def test_a_file_runs_at_a_tiny_size(name, tmp_path):
    """From random weights, on a task where these score: every fit has rows, and begins where the file says."""
    steps = list_steps(read_rounds([name]))
    sizes = [f"{step.place}.count=8" for step in steps if step.kind in ("sample", "evaluate")]
    sizes += [f"{step.place}.passes=1" for step in steps if step.kind == "fit" and step.stage.passes]
    left = ("evaluation.", "policy=")  # fits have no evaluation, and a file has a policy of its own
    common = [word for word in COMMON if not word.startswith(left)]
    words = [*common, "data.num_prompts=8", "data.num_minibatches=1", "trainer.max_epochs=1"]
    words += ["data.task._target_=tests.commands.rounds.tiny.Imitated", "data.sampling.max_tokens=60"]
    process = start(run_rounds, [name, *sizes, *words, f"run_dir={tmp_path / 'run'}"], tmp_path / "log")
    process.join(900)
    assert process.exitcode == 0, (tmp_path / "log").read_text()[-3000:]
    receipts = {step.name: read_receipt(tmp_path / "run" / step.name) for step in steps}
    for step in steps:
        receipt = receipts[step.name]
        assert receipt is not None and not receipt.note
        assert receipt.result.get("rows", 1) > 0
        if step.kind == "fit" and step.weights:
            first, before = (
                read_checkpoint(path)["state_dict"]
                for path in (
                    tmp_path / "run" / step.name / "checkpoints" / "start.ckpt",
                    tmp_path / "run" / step.weights / "checkpoints" / "last.ckpt",
                )
            )
            names = [key for key in before if key.startswith("policy.")]
            assert names and all(torch.equal(first[key], before[key]) for key in names)


def test_a_file_takes_a_checkpoint_and_problems_of_the_user(tmp_path):
    """Every stage is composed and parsed, with the setting of pretrained policies."""
    rows = "".join(f'{{"question": "{i} plus 1?", "answer": {i + 1}}}\n' for i in range(40))
    (tmp_path / "rows.jsonl").write_text(rows)
    words = ["policy=text", f"policy.path={qwen2(tmp_path / 'model')}", "task=dataset"]
    words += [f"task.path={tmp_path / 'rows.jsonl'}", "data.sampling.max_tokens=16", "optimizer.lr=1e-6"]
    file = read_rounds(["star", "start={}", "stages.fit.weights=base", *words])
    steps = list_steps(file)
    check_steps(file, steps, tmp_path / "run")
    fit = build_words(file, next(step for step in steps if step.kind == "fit"), tmp_path / "run")
    assert [word for word in fit if word.startswith(("task", "data.task"))] == words[2:4]
    assert "optimizer.lr=1e-6" in fit and "optimizer.lr=5e-4" not in fit
