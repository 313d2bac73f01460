"""The expert's answers as episodes."""

import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.vla.small.token import ActionTokenPolicy
from mmrl.rollouts.offline.demonstrations import Demonstrations
from sims.tabletop import Reach
from sims.task import SimTask
from tasks.arithmetic.task import Arithmetic
from tests.policies.text.oracle import TINY
from tests.tiny_recipes import Counting


class Watched(Arithmetic):
    """Counts how often the expert was asked."""

    asked = 0

    def demonstrations(self, prompts):
        type(self).asked += len(prompts)
        return super().demonstrations(prompts)


@pytest.fixture(scope="module")
def policy():
    return TextPolicy(config=TINY)


def context(task, policy):
    return Context(task, None, policy, Sampling(), seed=0, iteration=0, group_size=1)


def test_the_choices_are_the_tasks_own_answer(policy):
    task = Arithmetic()
    episodes = Demonstrations().collect([(i, task[i]) for i in range(6)], context(task, policy))
    for slot, episode in enumerate(episodes):
        (turn,) = episode.turns
        assert episode.source == "demo" and episode.group == slot
        assert policy.tokenizer.decode(turn.completion.action, skip_special_tokens=True) == str(episode.prompt.answer)
        assert turn.completion.action[-1] == policy.tokenizer.eos_token_id and turn.completion.action_mask.all()
        assert task.score(episode)["exact"] == 1
    batch = collate(episodes, policy)
    assert batch["is_demo"].all() and (batch["temperature"] == 1).all()
    assert policy(batch).logprobs.shape == batch["action_mask"].shape


def test_kept_demonstrations_are_asked_for_once(policy):
    task, rollout = Watched(), Demonstrations(cache_episodes=True)
    for expected, slots in ((3, (0, 1, 2)), (3, (2, 0)), (4, (1, 5))):
        episodes = rollout.collect([(i, task[i]) for i in slots], context(task, policy))
        assert Watched.asked == expected
        assert [task.score(e)["exact"] for e in episodes] == [1.0] * len(slots)
    first = rollout.collect([(0, task[0])], context(task, policy))[0]
    first.turns.append("a mark")
    assert len(rollout.collect([(0, task[0])], context(task, policy))[0].turns) == 1


def test_a_task_without_an_expert_says_so(policy):
    task = Counting()
    with pytest.raises(NotImplementedError, match="'counting' has no demonstrations"):
        Demonstrations().collect([(0, task[0])], context(task, policy))
    assert torch.is_grad_enabled()


def test_what_frozen_vision_sees_in_kept_demonstrations_is_kept():
    sizes = dict(hidden_size=32, layers=1, heads=2, intermediate_size=48, bins=16)
    policy, task = ActionTokenPolicy(freeze_vision=True, **sizes), SimTask(Reach(image_size=16, threads=1), count=2)
    slots = [(i, task[i]) for i in range(2)]
    plain, kept = (
        collate(Demonstrations(cache_episodes=keep).collect(slots, context(task, policy)), policy)
        for keep in (False, True)
    )
    assert "obs.visual" in kept and "obs.image" not in kept
    torch.testing.assert_close(policy(kept).logprobs, policy(plain).logprobs, atol=1e-5, rtol=0)
