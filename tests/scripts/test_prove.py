import csv
import importlib.util
import json
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from mmrl.experiments.stored import Plan, plan_of, state, told

spec = importlib.util.spec_from_file_location("prove", Path(__file__).parents[2] / "scripts" / "prove.py")
prove = importlib.util.module_from_spec(spec)
sys.modules["prove"] = prove
spec.loader.exec_module(prove)

COLUMN = "val/greedy/exact/mean"
PLAN = Plan(
    "grpo",
    OmegaConf.create(
        {
            "budget": "none",
            "column": COLUMN,
            "words": ["data.num_prompts=4"],
            "baseline": {"name": "reinforce", "words": ["recipe=reinforce", "optimizer.lr=1e-4"]},
        }
    ),
)


def finished(runs: Path, contents, afters, ran):
    """Every run of the plan as if a fit had ended: metrics and a receipt."""
    for job in prove.jobs_of(PLAN, contents, [0, 1, 2], runs):
        if (job.side, job.seed) not in afters:
            continue
        job.folder.mkdir(parents=True)
        with (job.folder / "metrics.csv").open("w") as file:
            writer = csv.writer(file)
            writer.writerow(["iterations", COLUMN, "val/greedy/exact/n", "rollout/episodes_collected"])
            writer.writerows([[0, 0.3, 200, ""], [1, "", "", 40], [2, afters[job.side, job.seed], 200, 40]])
        command = ["-m", "mmrl", "fit", *job.words, f"seed={job.seed}", f"run_dir={job.folder}"]
        (job.folder / "receipt.json").write_text(
            json.dumps({"command": command, "content": job.content, "seconds": 60.0})
        )
        ran.append(job)


AFTERS = {("method", s): a for s, a in enumerate((0.9, 0.91, 0.92))} | {
    ("baseline", s): a for s, a in enumerate((0.7, 0.72, 0.71))
}


def test_a_baseline_of_another_recipe_takes_its_place():
    sides = PLAN.sides()
    assert sides["method"] == ["recipe=grpo", "data.num_prompts=4"]
    assert sides["baseline"] == ["recipe=reinforce", "data.num_prompts=4", "optimizer.lr=1e-4"]
    assert PLAN.seeds == [0, 1, 2] and Plan("grpo", OmegaConf.create({"seeds": [3, 5]})).seeds == [3, 5]
    assert PLAN.content()["method"] != PLAN.content()["baseline"]


def test_a_side_that_is_not_measured_at_its_end_is_refused():
    words = ["recipe=grpo", "trainer.max_epochs=16", "trainer.check_val_every_n_epoch=15"]
    plan = Plan("visurf", OmegaConf.create({"column": "x", "baseline": {"name": "GRPO", "words": words}}))
    with pytest.raises(ValueError, match="the baseline has 16 iterations and is measured every 15, so not at its end"):
        plan.refuse_early_ends()
    plan.refuse_early_ends(alone=True)


def test_a_second_call_goes_on_and_the_last_run_writes_the_proof(tmp_path, monkeypatch):
    """Five of six runs are there; the sixth is made, and no other."""
    contents = PLAN.content()
    rest = dict(AFTERS)
    missing = rest.pop(("baseline", 1))
    finished(tmp_path / "runs", contents, rest, [])

    def fit(job, command):
        finished(tmp_path / "runs", contents, {("baseline", 1): missing}, started)
        return 60.0

    started: list = []
    monkeypatch.setattr(prove.Job, "_run", fit)
    errors = prove.prove([PLAN], None, 2, tmp_path / "runs", tmp_path / "out")
    assert not errors and [(job.side, job.seed) for job in started] == [("baseline", 1)]
    result = json.loads((tmp_path / "out" / "grpo.json").read_text())
    assert result["effect_over_baseline"] == pytest.approx(0.2) and result["verdict"] == "helps"
    assert [row["seed"] for row in result["baseline"]["seeds"]] == [0, 1, 2]
    assert result["curves"]["method"][0] == [[0.0, 0.3], [2.0, 0.9]]
    used = {"iterations": 2.0, "episodes": 80.0, "seconds": 60.0}
    assert result["spent"] == {"method": used, "baseline": used}
    assert (tmp_path / "out" / "grpo.png").read_bytes()[:4] == b"\x89PNG"
    assert state(PLAN, tmp_path / "out") == "current"
    assert told(result).startswith("helps: +0.200 [") and told(result).endswith("over reinforce")


def test_a_proof_is_stale_when_what_it_ran_has_changed(tmp_path):
    assert state(PLAN, tmp_path) == "missing"
    finished(tmp_path / "runs", PLAN.content(), AFTERS, [])
    prove.prove([PLAN], [0, 1, 2], 2, tmp_path / "runs", tmp_path)
    other = Plan("grpo", OmegaConf.merge(PLAN.prove, {"words": ["data.num_prompts=8"]}))
    more = Plan("grpo", OmegaConf.merge(PLAN.prove, {"seeds": 5}))
    assert state(PLAN, tmp_path) == "current" and state(other, tmp_path) == state(more, tmp_path) == "stale"


def test_a_run_that_fails_names_its_log(tmp_path):
    job = prove.Job(
        "none", "method", 0, ("recipe=grpo", "data.num_promts=4", "policy=none"), "x", tmp_path / "none" / "method-0"
    )
    with pytest.raises(prove.RunFailed, match=r"method-0\.log"):
        job()
    assert "policy=none" in (tmp_path / "none" / "method-0.log").read_text()


def test_every_stored_proof_can_be_told():
    for path in (prove.ROOT / "docs" / "proofs").glob("*.json"):
        assert told(json.loads(path.read_text()))
    assert prove.table(prove.ROOT / "docs" / "proofs")


def test_a_plan_takes_nothing_over_from_the_recipe_below():
    assert "target" in plan_of("grpo").prove and "target" not in plan_of("mopps").prove  # mopps builds on grpo


def test_a_recipe_without_a_plan_is_refused(tmp_path):
    assert plan_of("reinforce") is None
    with pytest.raises(SystemExit, match=r"conf/recipe/reinforce\.yaml"):
        prove.chosen(["reinforce"], False, tmp_path, prove.Console())
