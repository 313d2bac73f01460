"""The recipe trains on scripted subgoals and on those of a file; held-out episodes have none."""

import json

import pytest

pytest.importorskip("minigrid")

import mmrl
from sims.subgoals import SubgoalSim
from sims.task import SimTask
from tests.tiny_recipes import QUIET

ID = "MiniGrid-Empty-5x5-v0"
TINY = (
    *("rollout.num_envs=2", "rollout.horizon=64", "data.num_minibatches=1", "capture=false", "data.update_epochs=1"),
    *("trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "evaluation.count=2", f"sim.id={ID}"),
    *("sim.kwargs={max_steps: 16}", "sim.hidden=0"),
    *(word for word in QUIET if word != "trainer.logger=false"),
)


@pytest.mark.parametrize("written", [False, True])
def test_a_run_meets_subgoals_in_training_alone(tmp_path, written):
    words = []
    if written:  # the field ahead of the agent, and the one after it
        seeds = [SimTask(SubgoalSim(ID), 2)[i].info["seed"] for i in range(2)]
        file = tmp_path / "plans.jsonl"
        file.write_text("".join(json.dumps({"seed": seed, "subgoals": [[2, 1], [3, 1]]}) + "\n" for seed in seeds))
        words = [f"sim.plans='{file}'", "task.count=2"]
    metrics = mmrl.fit("recipe=words_as_beacons", f"run_dir='{tmp_path / 'run'}'", *words, *TINY).last_metrics
    assert metrics["rollout/score/subgoals/planned"] == 1
    assert metrics["val/greedy/returns/subgoals/planned"] == metrics["val/greedy/returns/subgoals/met"] == 0
    assert metrics["rollout/score/subgoals/met"] > 0 or not written
