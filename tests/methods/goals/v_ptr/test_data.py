"""V-PTR's data: outcomes and intents by counting, videos, demonstrations beside earlier data, and critics."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Sampling
from mmrl.curricula.sampler import Shuffled
from mmrl.data.offline.hindsight import HindsightGoals
from mmrl.data.offline.played_log import PlayedLog
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.engines.local import LocalEngine
from mmrl.methods.goals.v_ptr.data import ActionFreeDataset, CriticStart, IntentReplayBuffer, TargetReplayData
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.control.critic import Critics, LagrangeMultiplier
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.runs.checkpoint_file import write_checkpoint
from sims.point.goal_discs import GoalDiscs
from sims.task import SimTask


def fill(same: float) -> IntentReplayBuffer:
    """One episode of four pictures of one pixel, numbered from 0; the last is its final observation."""
    goals = HindsightGoals(0.2, 0.8, 0.0, uniform=True)
    replay = IntentReplayBuffer(goals=goals, same=same, capacity=10, batch_size=500, gamma=0.5)
    pictures = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1)
    rows = Batch({"obs.image": pictures[:3]}, action=torch.zeros(3, 1, 2), reward=torch.ones(3))
    last = torch.arange(3) == 2
    rows = rows.with_columns(episode=torch.zeros(3).long(), is_last=last, is_terminal=torch.zeros(3).bool())
    replay.add(rows, Batch({"obs.image": pictures[3:]}, episode=torch.tensor([0])))
    return replay


def test_outcomes_and_intents_by_counting():
    """From picture 2 both are 2 with probability .2, else 3; the outcome is the intent with .5 + .5 (.04 + .64) = .84.

    2,000 samples of three rows, about 667 of picture 2: 4 deviations of .84 are .057, of .2 are .062.
    """
    batch = fill(0.5).sample(4, np.random.default_rng(0))
    columns = {name: column.flatten() for name, column in batch.items() if name in ("reward", "intent_reward")}
    state, outcome, intent = (batch[f"obs.{name}"].flatten() for name in ("image", "outcome", "intent"))
    assert torch.equal(batch["next.image"].flatten(), state + 1)
    for goal, prefix in ((outcome, ""), (intent, "intent_")):
        assert (goal >= state).all()
        assert torch.equal(columns[f"{prefix}reward"], -(goal != state).float())
        assert torch.equal(batch[f"{prefix}discount"].flatten(), 0.5 * (goal != state).float())
    at = state == 2
    assert (intent[at] == 2).float().mean() == pytest.approx(0.2, abs=0.062)
    assert (outcome[at] == intent[at]).float().mean() == pytest.approx(0.84, abs=0.057)
    alike = fill(1.0).sample(1, np.random.default_rng(0))
    assert torch.equal(alike["obs.outcome"], alike["obs.intent"])
    assert set(batch) - {"action", "action_mask", "obs.image", "next.image", "reward", "discount"} == {
        *("obs.outcome", "obs.intent", "intent_reward", "intent_discount")
    }


def test_a_video_has_no_actions_and_no_rewards():
    log = PlayedLog(3).play(SimTask(GoalDiscs(point="yellow")), 0)
    video = ActionFreeDataset(log)
    for number in range(3):
        episode, played = video.read(number), log.read(number)
        assert not episode.actions.any() and not episode.rewards.any() and episode.executed is None
        assert played.actions.any() and played.rewards.any()
        np.testing.assert_array_equal(episode.observations["image"], played.observations["image"])


def make(**options):
    parts = dict(task=SimTask(GoalDiscs("red")), rollout=FixedHorizon(num_envs=1, horizon=4), reward=WeightedSum({}))
    parts |= dict(engine=LocalEngine(), weighting=TokenMean(), curriculum=Shuffled(), sampling=Sampling())
    parts |= dict(replay=ReplayBuffer(capacity=1000, batch_size=4), num_prompts=1, group_size=1)
    return TargetReplayData(**{**parts, "log": PlayedLog(30), **options})


def test_demonstrations_and_earlier_rows_are_as_many_and_tell_their_task():
    """Two demonstrations and ten earlier episodes of 20 rows each: five times the two."""
    dataset = make(num_demonstrations=2, prior={"goal": "blue"}, prior_episodes=10)._open_recording()
    tasks = [tuple(dataset[number].observations["task"][0].tolist()) for number in range(len(dataset))]
    assert tasks == [(1.0, 0.0)] * 10 + [(0.0, 1.0)] * 10
    assert all(dataset[number].success for number in range(10))
    np.testing.assert_array_equal(dataset[0].actions, dataset[2].actions)
    assert len(make(num_demonstrations=2)._open_recording()) == 2


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"log": None}, "name a data.log"),
        ({"num_demonstrations": 0}, "data.num_demonstrations must be at least 1"),
        ({"prior": {"colour": "blue"}}, "data.prior=.*arguments of the simulator"),
        ({"log": PlayedLog(1, noise=50.0)}, "none of 1 episodes succeeds"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(options, refused):
    with pytest.raises((ConfigError, ValueError), match=refused):
        make(**options)._open_recording()


def test_critics_go_on_where_the_earlier_stage_left_them(tmp_path):
    checkpoint = tmp_path / "last.ckpt"
    names = ("critic", "target_critic", "ent_coef")

    def build(seed):
        torch.manual_seed(seed)
        critics = {name: Critics(3, 2, [4]) for name in names[:2]}
        return torch.nn.ModuleDict({**critics, "ent_coef": LagrangeMultiplier(1.0 + seed)})

    earlier, fresh, models = build(1), build(2), build(2)
    write_checkpoint(
        {"state_dict": {f"models.{name}": weight for name, weight in earlier.state_dict().items()}}, checkpoint
    )
    learner, trainer = SimpleNamespace(models=models), SimpleNamespace(ckpt_path=None)
    CriticStart(str(tmp_path / "none.ckpt")).on_fit_start(trainer, learner)
    CriticStart(str(checkpoint)).on_fit_start(SimpleNamespace(ckpt_path="resumed"), learner)
    assert_close(models.state_dict(), fresh.state_dict(), atol=0, rtol=0)  # a run without the stage, and a resumed one
    CriticStart(str(checkpoint)).on_fit_start(trainer, learner)
    assert_close(models.state_dict(), earlier.state_dict(), atol=0, rtol=0)
    with pytest.raises(ConfigError, match=r"loads \['value'\]"):
        CriticStart(str(checkpoint), ["value"]).on_fit_start(trainer, learner)
