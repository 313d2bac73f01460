"""Rollouts over skills: durations and agreement, plain PPO without weight, resumed runs, and what is refused."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.exploration.llm_augmented_hierarchy.policy import SkillPolicy
from mmrl.methods.exploration.llm_augmented_hierarchy.priors import ScriptedPrior
from mmrl.methods.exploration.llm_augmented_hierarchy.rollout import SkillRollout
from mmrl.policies.control.policy import ControlPolicy
from sims.craft.skills import CraftSkillSim
from sims.task import SimTask
from tests.sims.craft.worlds import TINY, tiny
from tests.tiny_recipes import QUIET, record

SIM = CraftSkillSim(**TINY)


def play(rollout, policy=None, sim=SIM, episodes=6):
    torch.manual_seed(0)
    policy = policy or SkillPolicy(**{k: SIM.sizes()[k] for k in ("observation_dims", "actions")}, hidden=[8])
    engine = LocalEngine()
    engine.sync(policy, 0)
    task = SimTask(sim, episodes)
    ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0)
    return rollout.collect([(slot, task[slot]) for slot in range(episodes)], ctx)


def test_durations_are_the_decisions_between_choices():
    rollout = SkillRollout(ScriptedPrior(0.0, 1.0), weight=1.0, bootstrap=False, max_envs=4)  # in two waves
    episodes = play(rollout)
    for episode in episodes:
        durations = [float(turn.completion.extra["durations"]) for turn in episode.turns]
        assert sum(durations) == episode.info["scores"]["decisions"] and min(durations) >= 1
        # played again by themselves, the choices take the same decisions
        env = SIM.make(1)
        env.reset(seed=[episode.prompt.info["seed"]])
        for turn, duration in zip(episode.turns, durations):
            *_, infos = env.step([turn.completion.output])
            assert infos["executed"][0] == duration
    metrics = rollout.metrics()
    rows = [turn for episode in episodes for turn in episode.turns]
    total = sum(episode.info["scores"]["decisions"] for episode in episodes)
    assert metrics["skills/duration"] == pytest.approx(total / len(rows)) and metrics["prior/weight"] == 1
    # a prior of certainty is floored at .01 of four skills: nearly all choices are the right ones
    assert metrics["prior/agreement"] > 0.7 and metrics["prior/states"] >= 5
    assert all(episode.ended == "done" for episode in episodes)


def test_a_weight_that_changed_is_that_of_the_next_collection():
    rollout = SkillRollout(ScriptedPrior(0.0, 1.0), weight=1.0, bootstrap=False)
    play(rollout)
    with_prior = rollout.metrics()["prior/agreement"]
    rollout.weight = 0.0
    plain = play(rollout)
    assert rollout.metrics()["prior/weight"] == 0 and rollout.metrics()["prior/agreement"] < with_prior
    baseline = SkillRollout(None, weight=0.0, bootstrap=False)
    for one, other in zip(plain, play(baseline)):
        assert [t.completion.output for t in one.turns] == [t.completion.output for t in other.turns]
    assert set(baseline.metrics()) == {"skills/duration"}


TINY_RUN = (
    *("data.num_prompts=4", "data.num_minibatches=1", "data.update_epochs=2", "evaluation.count=2"),
    *("sim.target=table", "sim.max_steps=30", "capture=false", "trainer.check_val_every_n_epoch=1"),
    *QUIET,
)


def run(folder, *more):
    recorder = f"trainer.callbacks.recorder={{_target_: tests.tiny_recipes.Recorder, folder: '{folder}/record'}}"
    words = ["recipe=llm_augmented_hierarchy", *TINY_RUN, f"run_dir='{folder}'", recorder, *more]
    CLI(to_lightning(compose(words))).fit()
    return record(folder)


def test_a_prior_without_weight_is_plain_ppo_bit_for_bit(tmp_path):
    """Against policy, rollout and GAE of plain PPO. With gamma and lambda of 1 a duration changes nothing."""
    one = ("data.annotators.gae.gamma=1.0", "data.annotators.gae.gae_lambda=1.0", "trainer.max_epochs=2")
    ours = run(tmp_path / "ours", *one, "rollout.weight=0.0")
    plain = run(
        tmp_path / "plain",
        *one,
        "policy._target_=mmrl.policies.control.policy.ControlPolicy",
        "rollout=env",
        "rollout.bootstrap=false",
        "data.annotators.gae._target_=mmrl.annotators.gae.GAE",
    )
    for part in ("weights", "optimizer"):
        assert_close(ours[part], plain[part], atol=0, rtol=0)
    biased = run(tmp_path / "biased", *one, "rollout.weight=1.0")
    assert not all(torch.equal(biased["weights"][name], ours["weights"][name]) for name in ours["weights"])


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    constant = "model.scheduler=null"
    whole = run(tmp_path / "whole", constant, "trainer.max_epochs=3")
    run(tmp_path / "first", constant, "trainer.max_epochs=2")
    torch.manual_seed(99)
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = run(tmp_path / "second", constant, "trainer.max_epochs=3", checkpoint)
    for part in ("weights", "optimizer"):
        assert_close(resumed[part], whole[part], atol=0, rtol=0)
    weights = [done["prior/weight"] for done in whole["metrics"] if "prior/weight" in done]
    assert weights == pytest.approx([1, 0.8, 0.6])


def context(sim, policy) -> Context:
    return Context(SimTask(sim, 4), None, policy, None, 0, 0)  # type: ignore[arg-type]


def test_refusals():
    with pytest.raises(ConfigError, match="take sim=craft_skills"):
        SkillRollout().collect([], context(tiny(), None))
    policy = ControlPolicy(**{k: SIM.sizes()[k] for k in ("observation_dims", "actions")}, hidden=[8])
    with pytest.raises(ConfigError, match="take policy=skills"):
        play(SkillRollout(weight=0.0, bootstrap=False), policy)
    with pytest.raises(ValueError, match=r"policy\.kind=gaussian: a prior over skills needs numbered actions"):
        SkillPolicy(observation_dims=2, actions=2, kind="gaussian")
