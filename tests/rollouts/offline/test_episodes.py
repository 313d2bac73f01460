"""Cloning from recorded episodes: what is trained on, what is masked, what is refused."""

import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.datasets.processor_of_dataset import build_processor
from mmrl.datasets.task import OfflineTask
from mmrl.policies.processor import Processor
from mmrl.policies.vla.chains import FlowSDE
from mmrl.policies.vla.small.flow import ActionFlowPolicy
from mmrl.policies.vla.small.token import ActionTokenPolicy
from mmrl.rollouts.offline.episodes import OfflineRollout
from tests.datasets.episodes import CONTRACT, episode, write

TINY = dict(hidden_size=16, layers=1, heads=2, intermediate_size=16, visual_tokens=2, proprio_dims=5, chunk=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    lengths = [4, 6, 7, 3, 5, 8]
    result = [episode(steps, seed, success=seed != 2) for seed, steps in enumerate(lengths)]
    return str(write(tmp_path_factory.mktemp("recorded") / "set", result))


def context(task, policy):
    return Context(task, None, policy, Sampling(), seed=0, iteration=0)


def test_a_dataset_that_is_missing_is_refused_when_the_rollout_is_built(tmp_path):
    with pytest.raises(ValueError, match="nowhere: no such folder or file"):
        OfflineRollout(str(tmp_path / "nowhere"))


def test_splits_are_disjoint_and_without_failures(folder):
    task = OfflineTask(folder, every=3)
    train, held_out = set(task.episode_indices), set(task.on("held_out").episode_indices)
    assert train == {0, 1, 3, 4} and held_out == {5}  # 2 failed
    assert task.contract() == CONTRACT
    assert task.sizes() == {"action_dims": 3, "proprio_dims": 5, "chunk": 3}
    assert task[2].info["episode_index"] == 3 and task.on("held_out")[0].key == "offline/held_out/0"
    with pytest.raises(ValueError, match=r"task\.every must be at least 2"):
        OfflineTask(folder, every=1)


def test_turns_are_the_recorded_decisions(folder):
    task, policy = OfflineTask(folder), ActionTokenPolicy(**TINY)
    ctx = context(task, policy)
    episodes = OfflineRollout(folder).collect([(s, task[i]) for s, i in enumerate((3, 0))], ctx)
    assert [len(e.turns) for e in episodes] == [2, 2] and [e.group for e in episodes] == [0, 1]
    assert all(e.source == "demo" and e.ended == "done" and task.score(e)["success"] == 1 for e in episodes)
    batch = collate(episodes, policy)
    # 5 and 4 control steps in chunks of 3: the last chunks are 2 and 1 long, 3 choices per step
    assert batch["action_mask"].sum(1).tolist() == [9, 6, 9, 3]
    was = torch.tensor(episode(5, 4).actions)
    centres = (2 * batch["action"][0].view(3, 3) + 1) / policy.bins - 1
    assert (centres - was[:3]).abs().max() <= 1 / policy.bins
    assert policy(batch).logprobs.shape == (4, 9)


def test_a_flow_head_leaves_the_filled_control_steps_out(folder):
    policy = ActionFlowPolicy(FlowSDE(steps=2), **TINY, expert_layers=1)
    task = OfflineTask(folder)
    batch = collate(OfflineRollout(folder).collect([(0, task[3])], context(task, policy)), policy)
    assert batch["action_mask"].tolist() == [[True] * 3, [True, True, False]]
    torch.testing.assert_close(batch["action"][1], torch.tensor(episode(5, 4).actions[[3, 4, 4]]))


def test_prompts_of_any_task_are_given_episodes_that_did_not_fail(folder):
    class Other(OfflineTask):
        def __getitem__(self, index):
            prompt = super().__getitem__(index % len(self))
            prompt.info.clear()
            return type(prompt)(key=f"other/train/{index}")

    task, policy = Other(folder), ActionTokenPolicy(**TINY)
    rollout = OfflineRollout(folder, cache_episodes=True)
    episodes = rollout.collect([(i, task[i]) for i in range(7)], context(task, policy))
    assert [int(e.info["source_episode"].split()[-1]) for e in episodes] == [0, 1, 3, 4, 5, 0, 1]
    kept, again = episodes[0].turns[0].completion, episodes[5].turns[0].completion
    assert kept.observation is again.observation
    every = OfflineRollout(folder, include_failures=True).collect(
        [(i, task[i]) for i in range(3)], context(task, policy)
    )
    assert every[2].info["scores"] == {"success": 0.0} and every[2].ended == "time"


def test_another_simulator_is_refused(folder):
    class Elsewhere(OfflineTask):
        def contract(self):
            return {**CONTRACT, "colours": ("red", "blue"), "chunk": 4}

    task = Elsewhere(folder)
    ctx = context(task, ActionTokenPolicy(**TINY))
    with pytest.raises(ValueError, match="another simulator"):
        OfflineRollout(folder).collect([(0, task[0])], ctx)
    # also before a model is built and the start is measured
    with pytest.raises(ValueError, match="another simulator") as refused:
        OfflineRollout(folder).check_task(task)
    assert "chunk: 3 in the dataset, 4 here" in str(refused.value) and "colours" not in str(refused.value)
    OfflineRollout(folder, ignore_contract=True).collect([(0, task[0])], ctx)


def test_a_processor_from_the_statistics(folder):
    processor = Processor.from_dict(build_processor(folder, "min_max"))
    policy = ActionTokenPolicy(**TINY, processor=processor)
    task = OfflineTask(folder)
    episodes = OfflineRollout(folder, stride=1).collect([(i, task[i]) for i in range(5)], context(task, policy))
    batch = collate(episodes, policy)
    used = batch["action"][batch["action_mask"]]
    assert used.min() <= 8 and used.max() >= policy.bins - 9  # the extremes of all but one episode reach the edges
    assert batch["obs.proprio"].mean(0).abs().max() < 0.3
    with pytest.raises(ValueError, match=r"the action has 3 dimensions, so \[7\] cannot be left unscaled"):
        build_processor(folder, unscaled_dims=[7])


def test_a_dataset_must_be_named():
    with pytest.raises(ValueError, match=r"rollout\.path=FOLDER"):
        OfflineRollout()
