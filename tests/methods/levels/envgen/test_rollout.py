"""EnvGen's cycles: which worlds are played and when, what the writer is told, resumed runs, and what is refused."""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.levels.envgen.rollout import EnvGen, Worlds, WrittenSim, plan_iteration
from mmrl.methods.levels.envgen.writers import RuleWriter
from mmrl.policies.control.policy import ControlPolicy
from sims.craft.configured import ConfiguredCraftSim
from sims.task import SimTask
from tests.sims.craft.worlds import TINY, tiny
from tests.tiny_recipes import QUIET, record

SIM = ConfiguredCraftSim(**{**TINY, "max_steps": 6})
LOGS, PLANK = [{"inventory": {"log": 1}}, {"inventory": {"log": 2}}], {"inventory": {"plank": 1}}


class Answers:
    """Gives answers in their order, the last one again and again, and keeps what it was told."""

    def __init__(self, *answers):
        self.answers, self.told = answers, []

    def write_worlds(self, feedback):
        self.told.append(feedback)
        return self.answers[min(len(self.told), len(self.answers)) - 1]


def test_a_plan_by_hand():
    """Two cycles of two iterations in written worlds and one in the original one, then the original one alone."""
    plan = [plan_iteration(i, 2, 2, 1) for i in range(8)]
    assert plan == [(0, True), (0, True), (0, False), (1, True), (1, True), (1, False), (None, False), (None, False)]
    assert plan_iteration(0, 0, 2, 1) == (None, False)


def test_episodes_begin_in_the_worlds_in_turn():
    worlds = Worlds(LOGS, active=True)
    env = WrittenSim(SIM, worlds).make(3)
    env.reset(seed=[0, 0, 0])
    stocks = lambda: [int(world.held[0]) for world in env.unwrapped.envs]  # noqa: E731
    assert stocks() == [1, 2, 1]
    saved = env.state_dict()
    _, infos = env.reset(seed=[2, 2, 2], options={"reset_mask": np.array([True, False, True])})
    assert stocks() == [2, 2, 2] and infos["scores"]["written"].tolist() == [1, 1, 1]
    worlds.active = False
    _, infos = env.reset(seed=[4, 4, 4], options={"reset_mask": np.array([False, True, False])})
    assert stocks() == [2, 0, 2] and infos["scores"]["written"].tolist() == [1, 0, 1]
    worlds.active = True
    env.reset(seed=[6, 6, 6])
    assert stocks() == [1, 1, 1]  # episode 2 of the first and third, episode 1 of the second
    env.load_state_dict(saved)
    assert stocks() == [1, 2, 1] and env._begun.tolist() == [1, 1, 1] and env._written.all()


def play(rollout, iterations):
    """Iterations of a random policy, with the rollout's counts of success; returns their metrics."""
    torch.manual_seed(0)
    policy = ControlPolicy(**{name: SIM.sizes()[name] for name in ("observation_dims", "actions")}, hidden=[8])
    engine, task, metrics = LocalEngine(), SimTask(SIM, 8), []
    engine.sync(policy, 0)
    for iteration in range(iterations):
        ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=iteration)
        episodes = rollout.collect([(slot, task[slot]) for slot in range(2)], ctx)
        for episode in episodes:
            if episode.ended in ("done", "time"):
                episode.scores = task.score(episode)
        rollout.observe([[episode] for episode in episodes])
        metrics.append(rollout.metrics())
    return metrics


def test_the_writer_is_told_the_success_in_the_original_world_and_why_it_was_refused():
    first = json.dumps([LOGS[0], {"biome": {}}])
    writer = Answers(first, json.dumps(LOGS), json.dumps([{"biome": {}}, PLANK]))
    rollout = EnvGen(writer, 2, 1, 2, worlds=2, attempts=2, num_envs=2, horizon=12)
    metrics = play(rollout, 7)
    assert [m["worlds/active"] for m in metrics] == [1, 0, 0, 1, 0, 0, 0]
    # cycle 0: two answers, one refusal; cycle 1: two answers, in each the same refusal
    assert [m["worlds/answers"] for m in metrics] == [2, 2, 2, 4, 4, 4, 4]
    assert [m["worlds/refused"] for m in metrics] == [1, 1, 1, 3, 3, 3, 3]
    begin, again, later, last = writer.told
    assert not begin.success and not begin.refused and not begin.previous and begin.number == 0
    assert again.refused == ["2: biome: no such setting; there are rarity and inventory"] and again.number == 1
    assert later.previous == LOGS and last.number == 3 and len(last.refused) == 1
    # 4 episodes of 6 decisions in each of 2 environments, of which the first began as the last decision of the
    # iteration before was played, in a written world
    assert {name: each.episodes for name, each in later.success.items()} == dict.fromkeys(SIM.items, 6)
    assert rollout.worlds.configurations == [PLANK, {}]  # the refused one is the original world


def test_worlds_that_are_not_adapted_are_written_once():
    writer = Answers(json.dumps(LOGS))
    rollout = EnvGen(writer, 2, 1, 1, worlds=2, adapt=False, num_envs=2, horizon=6)
    metrics = play(rollout, 5)
    assert len(writer.told) == 1 and [m["worlds/active"] for m in metrics] == [1, 0, 1, 0, 0]
    rollout = EnvGen(writer, 0, 1, 1, num_envs=2, horizon=6)
    assert [m["worlds/active"] for m in play(rollout, 2)] == [0, 0] and len(writer.told) == 1


def test_only_finished_episodes_of_the_original_world_count():
    rollout = EnvGen(RuleWriter(), num_envs=1, horizon=1)

    def episode(ended, written, wood):
        return Episode(Prompt("p"), 0, 0, scores={"written": written, "skill/wood": wood, "success": 1.0}, ended=ended)

    finished = [episode("done", 0.0, 1.0), episode("time", 0.0, 0.0), episode("done", 1.0, 1.0)]
    cut = [Episode(Prompt("p"), 0, 0, ended="cut"), episode("error", 0.0, 1.0)]
    rollout.observe([[each] for each in (*finished, *cut)])
    assert {name: (each.episodes, each.successes) for name, each in rollout._success.items()} == {"wood": (2, 1)}


TINY_RUN = (
    *("rollout.num_envs=2", "rollout.horizon=24", "data.num_minibatches=1", "data.update_epochs=1"),
    *("rollout.cycles=2", "rollout.written_iterations=1", "rollout.original_iterations=1", "sim.max_steps=10"),
    *("evaluation.count=2", "capture=false", "model.scheduler=null", "trainer.check_val_every_n_epoch=1", *QUIET),
)


def run(folder, *more):
    recorder = f"trainer.callbacks.recorder={{_target_: tests.tiny_recipes.Recorder, folder: '{folder}/record'}}"
    CLI(to_lightning(compose(["recipe=envgen", *TINY_RUN, f"run_dir='{folder}'", recorder, *more]))).fit()
    return record(folder)


@pytest.mark.parametrize("iterations", [1, 2])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, iterations):
    """Cut inside of a cycle, after its written worlds, and between two cycles."""
    whole = run(tmp_path / "whole", "trainer.max_epochs=4")
    run(tmp_path / "first", f"trainer.max_epochs={iterations}")
    torch.manual_seed(99)
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = run(tmp_path / "second", "trainer.max_epochs=4", checkpoint)
    for part in ("weights", "optimizer"):
        assert_close(resumed[part], whole[part], atol=0, rtol=0)
    written = [(done["worlds/active"], done["worlds/answers"]) for done in whole["metrics"] if "worlds/active" in done]
    assert written == [(1, 1), (0, 1), (1, 2), (0, 2)]
    assert any("val/greedy/game/score" in done for done in whole["metrics"])


def test_refusals():
    policy = ControlPolicy(observation_dims=12, actions=7, hidden=[8])
    ctx = Context(SimTask(tiny(), 4), None, policy, Sampling(), 0, 0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"take sim=craft_worlds, and sim\.workers=0"):
        EnvGen(RuleWriter()).collect([], ctx)
    options = [{"cycles": -1}, {"written_iterations": 0}, {"original_iterations": 0}, {"worlds": 0}, {"attempts": 0}]
    for each in options:
        with pytest.raises(ValueError, match=f"rollout.{next(iter(each))} must be at least"):
            EnvGen(RuleWriter(), **each)
