"""Which questions are queued, when they are demonstrated, and that the queue is saved."""

import pytest
import torch

from mmrl.core.groups import group_episodes
from mmrl.core.types import FIRST_ADDED_GROUP, Collector, Context, Episode, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.guidance.relift import HardQuestionBuffer
from mmrl.policies.text.policy import TextPolicy
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, completions

TASK = Arithmetic()
GOLDEN = [[0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return TextPolicy(config=TINY).eval()


def episodes(policy, rewards, first=0):
    """A group of completions of each problem from `first` on, with these scores."""
    prompts = [TASK[first + i] for i, group in enumerate(rewards) for _ in group]
    done = iter(completions(policy, prompts, Sampling(max_tokens=3)))
    return [
        Episode(TASK[first + i], i, k, [Turn(next(done))], scores={"exact": float(score)})
        for i, group in enumerate(rewards)
        for k, score in enumerate(group)
    ]


def context(policy, rank=0, size=1, collector=None):
    collector = collector or Collector()
    return Context(TASK, None, policy, Sampling(), 0, 0, rank=rank, world_size=size, collector=collector)


def demonstrated(result):
    return [episode.prompt.index for episode in result if episode.source == "demo"]


@pytest.mark.parametrize("size, shown, waiting", [(2, [0, 2], []), (3, [], [0, 2]), (1, [0], [2])])
def test_questions_that_a_whole_group_fails(policy, size, shown, waiting):
    part, sampled = HardQuestionBuffer(size), episodes(policy, GOLDEN)
    result = part(list(sampled), context(policy))
    assert all(one is other for one, other in zip(result, sampled))  # sampled rows stay
    assert demonstrated(result) == shown
    assert part.state_dict() == {"waiting": waiting}


def test_first_in_first_out_and_saved(policy):
    part = HardQuestionBuffer(3)
    part(episodes(policy, GOLDEN), context(policy))
    resumed = HardQuestionBuffer(3)
    resumed.load_state_dict(part.state_dict())
    for one in (part, resumed):
        result = one(episodes(policy, [[0, 0], [0, 0]], first=7), context(policy))
        assert demonstrated(result) == [0, 2, 7] and one.state_dict() == {"waiting": [8]}
    HardQuestionBuffer(3).load_state_dict({})


def test_a_right_format_is_no_failure(policy):
    part = HardQuestionBuffer(1)
    assert demonstrated(part(episodes(policy, [[0, 0.1], [0.1, 0.1]]), context(policy))) == []
    part = HardQuestionBuffer(1, fail_value=0.1)
    assert demonstrated(part(episodes(policy, [[0, 0.1], [0.1, 0.1]]), context(policy))) == [1]


def test_a_demonstration_is_a_group_and_a_row_of_the_batch(policy):
    result = HardQuestionBuffer(2)(episodes(policy, GOLDEN), context(policy))
    assert [slot for slot, group in group_episodes(result).items() if len(group) == 1] == [
        FIRST_ADDED_GROUP,
        FIRST_ADDED_GROUP + 1,
    ]
    assert result[-1].output == TASK.demonstrate(2)
    batch = collate(result, policy)
    assert batch["is_demo"].tolist() == [False] * 12 + [True] * 2
    ids = policy.encode_demonstration(TASK[2].observation, TASK.demonstrate(2))
    assert torch.equal(batch["action"][-1][batch["action_mask"][-1]], ids)


class Together(Collector):
    """What two processes gather, whichever asks."""

    def gather(self, items):
        return [(1, 1), (3, 3), (0, 0), (2, 2)]  # slots and problems of both


def test_two_processes_share_the_demonstrations_of_one(policy):
    parts = [HardQuestionBuffer(3), HardQuestionBuffer(3)]
    results = [part([], context(policy, rank, 2, Together())) for rank, part in enumerate(parts)]
    assert [demonstrated(result) for result in results] == [[0, 2], [1]]
    assert [episode.group - FIRST_ADDED_GROUP for result in results for episode in result] == [0, 2, 1]
    assert parts[0].state_dict() == parts[1].state_dict() == {"waiting": [3]}


def test_refusal():
    with pytest.raises(ValueError, match="size"):
        HardQuestionBuffer(0)
