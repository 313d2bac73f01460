"""Truncated completions earn nothing, and the start writes lines several times."""

from dataclasses import replace

import pytest

from mmrl.core.types import Context, Episode, Sampling, Turn
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.function import FunctionReward
from mmrl.rewards.scoring import score
from mmrl.rollouts.offline.repeated_lines import RepeatedLines
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, completions

TASK = Arithmetic(digits=(1, 1, 1), steps=True)


def test_a_truncated_completion_is_wrong():
    policy = TextPolicy(config=TINY).eval()
    done = replace(completions(policy, [TASK[0]], Sampling(max_tokens=3))[0], output=TASK.demonstrate(0))
    wrong = replace(done, output="no")
    episodes = [
        Episode(TASK[0], 0, k, [Turn(part)], ended=ended)
        for k, (part, ended) in enumerate([(done, "done"), (done, "length"), (wrong, "done"), (wrong, "length")])
    ]
    reward = FunctionReward(["mmrl.rewards.shaping:exact_within_limit"], weights={"exact": 0.0}, in_process=True)
    score(episodes, TASK, reward)
    assert [episode.scores["exact"] for episode in episodes] == [1, 1, 0, 0]
    assert [episode.reward for episode in episodes] == [1, 0, 0, 0]
    score(episodes[1::2], TASK, reward)  # a group of truncated completions has no variance, and so no advantage
    assert {episode.reward for episode in episodes[1::2]} == {0}


def test_lines_are_written_several_times():
    policy = TextPolicy(config=TINY)
    ctx = Context(TASK, None, policy, Sampling(), seed=0, iteration=0)
    (episode,) = RepeatedLines(2).collect([(3, TASK[3])], ctx)
    first, last = TASK.demonstrate(3).split("\n")
    assert episode.output == f"{first}\n{first}\n{last}\n{last}"
    assert TASK.score(Episode(TASK[3], 0, 0, episode.turns))["exact"] == 1
    rollout, times = RepeatedLines(3, least=1), [replace(ctx, iteration=iteration) for iteration in range(9)]
    drawn = {rollout.collect([(3, TASK[3])], time)[0].output for time in times}
    assert drawn == {"\n".join([first] * n + [last] * n) for n in (1, 2, 3)}
    with pytest.raises(ValueError, match="times"):
        RepeatedLines(0)
    with pytest.raises(ValueError, match="least"):
        RepeatedLines(2, least=3)
    with pytest.raises(ValueError, match="texts"):
        RepeatedLines().encode({}, 3, ctx)
