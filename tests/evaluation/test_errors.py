"""A simulation that diverges ends its episode as an error: counted everywhere, scored and learned from nowhere."""

from __future__ import annotations

import lightning as L
import pytest
import torch

from mmrl.core.types import Sampling
from mmrl.data.collate import collate
from mmrl.data.minibatches import UpdateEpoch
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from sims.tabletop import Reach
from sims.task import SimTask
from tests.evaluation.faulty import DivergingReach
from tests.rollouts.env.test_episodic import Guess, context, play
from tests.tiny_recipes import fit

SMALL = (
    "policy.hidden_size=32",
    "policy.layers=1",
    "policy.heads=2",
    "data.task.sim.image_size=32",
    "data.num_prompts=6",
    "data.group_size=2",
    "data.update_epochs=1",
    "data.num_minibatches=2",
    "data.evaluation.count=9",
    "trainer.max_epochs=1",
    "trainer.check_val_every_n_epoch=1",
)


class Seen(L.Callback):
    """Keeps what was collected and which rows were trained on, as (group, action)."""

    episodes: list = []
    rows: list = []
    finite = True

    def on_train_start(self, trainer, pl_module):
        Seen.episodes, Seen.rows, Seen.finite = [], [], True

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        for minibatch in batch if isinstance(batch, UpdateEpoch) else [batch]:
            weights = minibatch["loss_weights"].sum(1)
            chosen = zip(minibatch["group"].tolist(), minibatch["action"].numpy(), weights)
            Seen.rows += [(g, a.tobytes()) for g, a, w in chosen if w > 0]
            numbers = [c for c in minibatch.values() if isinstance(c, torch.Tensor) and c.is_floating_point()]
            Seen.finite &= all(bool(torch.isfinite(c).all()) for c in numbers)

    def on_train_batch_end(self, trainer, pl_module, *_):
        Seen.episodes = trainer.datamodule.last_episodes


SEEN = "trainer.callbacks.seen={_target_: tests.evaluation.test_errors.Seen}"


def rows_of(episodes) -> list:
    return [(e.group, turn.completion.action.numpy().tobytes()) for e in episodes for turn in e.turns]


def failed(episodes) -> list:
    return [e for e in episodes if e.ended == "error"]


@pytest.mark.parametrize("speed", [1e6, 0.0])
def test_a_diverging_env_is_an_error_and_the_others_do_not_notice(speed):
    options = {"image_size": 16, "threads": 1}
    sound = play(SimTask(Reach(**options), count=64), Guess(), range(9), group_size=1)
    broken = play(SimTask(DivergingReach(speed=speed, **options), count=64), Guess(), range(9), group_size=1)
    for i, (one, other) in enumerate(zip(sound, broken)):
        if i % 3 == 0 and len(one.turns) > 1:
            assert other.ended == "error" and len(other.turns) == 2
        else:
            assert (other.ended, other.info) == (one.ended, one.info)
            assert rows_of([other]) == rows_of([one])
    assert len(failed(broken)) == 3


def test_errors_are_counted_beside_the_rate():
    task, policy = SimTask(DivergingReach(image_size=16, threads=1), count=64), Guess()
    held_out = HeldOut(EpisodicRollout(), {"sample": Sampling()}, {"success": SuccessRate("success")}, count=9)
    numbers = held_out.measure(task, WeightedSum({"success": 1.0}), context(task, policy))
    episodes = held_out.latest["sample"]
    errors = len(failed(episodes))
    assert errors == numbers["sample/success/errors"] == 3 and numbers["sample/success/n"] == 6
    assert all(e.scores == {} and e.reward == 0 for e in failed(episodes))
    wins = sum(e.scores["success"] for e in episodes if e.ended != "error")
    assert numbers["sample/success/mean"] == wins / 6


@pytest.mark.parametrize("speed", ["1e6", "0.0"])
def test_an_iteration_learns_from_the_other_episodes_only(tmp_path, speed):
    target = "data.task.sim._target_=tests.evaluation.faulty.DivergingReach"
    entropy = "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}"
    left = fit(tmp_path, "recipe=demo_vla", *SMALL, target, f"data.task.sim.speed={speed}", SEEN, entropy)
    errors = failed(Seen.episodes)
    assert 0 < len(errors) < len(Seen.episodes) == 12 and Seen.finite
    assert not set(Seen.rows) & set(rows_of(errors))
    assert sorted(Seen.rows) == sorted(rows_of(e for e in Seen.episodes if e.ended != "error"))
    rollout = next(m for m in left["metrics"] if "rollout/errors" in m)
    assert rollout["rollout/errors"] == len(errors) and rollout["rollout/episodes"] == 12 - len(errors)
    measured = next(m for m in left["metrics"] if "val/mean/success/errors" in m)
    assert measured["val/mean/success/errors"] > 0
    assert measured["val/mean/success/n"] + measured["val/mean/success/errors"] == 9


def test_segments_of_diverging_envs_end_and_the_envs_begin_new_episodes():
    task, policy = SimTask(DivergingReach(image_size=16, threads=1), count=64), Guess(values=True)
    rollout = FixedHorizon(num_envs=3, horizon=8)
    segments = rollout.collect([(i, task[i]) for i in range(3)], context(task, policy))
    errors = failed(segments)
    assert errors and rollout.metrics()["sim_errors"] == len(errors)
    assert {s.prompt.key for s in errors} == {"tabletop-reach/env/0"}
    assert all(len(s.turns) == 1 for s in errors)  # the decision that failed is in no segment
    batch = collate([s for s in segments if s.ended != "error"], policy)
    assert all(torch.isfinite(c).all() for c in batch.values() if isinstance(c, torch.Tensor))


def test_gymnasium_envs_that_give_no_numbers_are_counted_and_not_learned_from(tmp_path, caplog):
    words = ("recipe=ppo_control", "data.task.sim.id=tests/Unstable-v0", "data.num_prompts=4")
    words += ("data.update_epochs=1", "data.num_minibatches=2", "data.evaluation.count=8", "trainer.max_epochs=1")
    sizes = ("data.rollout.num_envs=2", "data.rollout.horizon=12", "trainer.check_val_every_n_epoch=1")
    left = fit(tmp_path, *words, *sizes, SEEN)
    errors = failed(Seen.episodes)
    counted = [e for e in Seen.episodes if e.ended != "error"]
    assert errors and Seen.finite and len(Seen.rows) == sum(len(e.turns) for e in counted)
    numbers = {key: value for one in left["metrics"] for key, value in one.items()}
    assert numbers["rollout/errors"] == len(errors) == numbers["sim_errors"]
    assert 0 < numbers["val/greedy/returns/errors"] < 8
    assert numbers["val/greedy/returns/return"] == 5.0  # of the episodes that came to their end
