"""A run that was broken off and resumed is the run that was not, bit for bit; and a seed is a run."""

import signal

import pytest
import torch
from torch.testing import assert_close

from tests.runs.processes import command, run
from tests.tiny_recipes import fit, words

RUNS = {
    "text": (
        "recipe=dapo_clip",
        "model.scheduler.total_iters=20",
        "data.num_minibatches=2",
        "model.reference=true",
        "data.pipeline=[reference, group_advantage]",
    ),
    # episodes of text environments: rows of several turns
    "text_environment": (
        "rollout=text_environment",
        "data.task._target_=tests.text_environments.Count",
        "data.task.chance=true",
        "data.rollout.history=1",
        "data.rollout.max_concurrent=7",
        "data.reward.weights={exact: 1.0, return: 0.1}",
        "data.evaluation.rollout=${data.rollout}",
        "model.scheduler.total_iters=20",
        "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
    ),
    "vla": (  # a random arm hardly succeeds: the entropy gives it something to learn
        "recipe=demo_vla",
        "model.scheduler.total_iters=20",
        "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
        "policy.hidden_size=32",
        "policy.layers=1",
        "policy.heads=2",
        "data.task.sim.image_size=32",
        "data.num_prompts=3",
        "data.group_size=2",
        "data.update_epochs=1",
        "data.num_minibatches=2",
        "data.evaluation.count=2",
    ),
    "control": (
        "recipe=ppo_control",
        "model.scheduler.total_iters=20",
        "data.num_prompts=4",
        "data.update_epochs=2",
        "data.num_minibatches=2",
        "data.evaluation.count=4",
        "data.rollout.num_envs=3",
        "data.rollout.horizon=8",
    ),
    "levels": (  # mixtures are fitted before the saving and after it
        "recipe=alp_gmm",
        "model.scheduler.total_iters=20",
        "data.task.sim.id=tests.sims.levels.climb:tests/Climb-v0",
        "data.task.grid=2",
        "data.num_prompts=24",
        "data.update_epochs=1",
        "data.num_minibatches=2",
        "data.rollout.num_envs=3",
        "data.rollout.horizon=8",
        "data.curriculum.fit_rate=4",
        "data.curriculum.components=2",
    ),
    "replay": (  # n_steps > 1, two environments, and a ring buffer that is overwritten between the saving and the end
        "recipe=td3",
        "policy.hidden=[8]",
        "model.models.critic.hidden=[8]",
        "data.learning_starts=10",
        "data.gradient_steps=5",
        "data.updates_per_step=2",
        "data.rollout.num_envs=2",
        "data.rollout.horizon=8",
        "data.replay.capacity=40",
        "data.replay.batch_size=8",
        "data.replay.n_steps=2",
        "data.evaluation.count=2",
        "data.task.sim.max_episode_steps=20",
        "trainer.callbacks.last.every_n_epochs=1",
    ),
    "world_model": (  # the belief goes on over the saving, since episodes of 20 decisions are cut after 8
        "recipe=dreamer",
        "policy.hidden=[8]",
        "policy.belief_size=8",
        "policy.hidden_size=8",
        "policy.image_depth=2",
        "data.learning_starts=10",
        "data.gradient_steps=3",
        "data.updates_per_step=2",
        "data.rollout.num_envs=2",
        "data.rollout.horizon=8",
        "data.replay.capacity=40",
        "data.replay.batch_size=4",
        "data.replay.chunk=3",
        "data.evaluation.count=2",
        "trainer.callbacks.last.every_n_epochs=1",
    ),
}
LAST = 4


def same(one: dict, other: dict) -> None:
    """Weights, moments, order of data and metrics, without tolerance."""
    for part in ("weights", "optimizer"):
        assert_close(one[part], other[part], atol=0, rtol=0, equal_nan=True)
    for part in ("iteration", "curriculum"):  # a simulator's state is pickled; two iterations show that it came back
        assert one["data"][part] == other["data"][part]
    for part in ("metrics", "minibatches"):
        count = len(other[part])
        assert count > 0
        assert_close(one[part][-count:], other[part], atol=0, rtol=0, equal_nan=True)


@pytest.fixture(scope="module", params=RUNS)
def uninterrupted(request, tmp_path_factory):
    chosen = (*RUNS[request.param], "trainer.check_val_every_n_epoch=1")
    return chosen, fit(tmp_path_factory.mktemp("whole"), *chosen, f"trainer.max_epochs={LAST}")


def test_a_resumed_run_is_the_uninterrupted_one(uninterrupted, tmp_path):
    chosen, whole = uninterrupted
    fit(tmp_path / "first", *chosen, "trainer.max_epochs=2")
    torch.manual_seed(99)  # nothing may hang on the generators of the process
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = fit(tmp_path / "second", *chosen, f"trainer.max_epochs={LAST}", checkpoint)
    assert len(resumed["metrics"]) == len(whole["metrics"]) / 2
    same(whole, resumed)


def test_a_killed_run_resumes_as_if_nothing_had_happened(uninterrupted, tmp_path):
    chosen, whole = uninterrupted
    killer = "trainer.callbacks.killed={_target_: tests.tiny_recipes.Killed, epoch: 2}"
    log = tmp_path / "log"
    status = run(command, ["fit", *words(tmp_path / "first", *chosen, f"trainer.max_epochs={LAST}", killer)], log)
    assert status == -signal.SIGKILL, log.read_text()[-3000:]
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = fit(tmp_path / "second", *chosen, f"trainer.max_epochs={LAST}", checkpoint)
    assert len(resumed["metrics"]) == len(whole["metrics"]) / 2
    same(whole, resumed)


def test_the_seed_is_the_run(uninterrupted, tmp_path):
    chosen, whole = uninterrupted
    same(whole, fit(tmp_path / "again", *chosen, f"trainer.max_epochs={LAST}"))
    other = fit(tmp_path / "other", *chosen, "trainer.max_epochs=1", "seed=1")
    assert other["minibatches"][0] != whole["minibatches"][0]
    assert other["metrics"][1] != whole["metrics"][1]
