"""Logged conversations as episodes, and the offline methods that learn from them."""

import re

import pytest
import torch

from mmrl.__main__ import main
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.data.parity import measure_staleness
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.logged_conversations import LoggedConversations
from tasks.arithmetic.task import Arithmetic
from tasks.conversation_log.task import ConversationLog
from tests.policies.text.oracle import TINY
from tests.tasks.data.talks import write
from tests.tiny_recipes import QUIET


@pytest.fixture
def talks(tmp_path):
    return write(tmp_path / "talks.jsonl")


def test_a_row_for_each_turn_with_its_reward(talks):
    torch.manual_seed(0)
    policy, task = TextPolicy(config=TINY), ConversationLog(str(talks))
    ctx = Context(task, None, policy, Sampling(), seed=0, iteration=3, group_size=1)
    episodes = LoggedConversations().collect([(i, task[i]) for i in range(4)], ctx)
    batch = collate(episodes, policy)
    assert batch["reward"].tolist() == [-0.5, 1, 1, 0, 1] and batch["episode"].tolist() == [0, 0, 1, 2, 3]
    assert batch["is_last"].tolist() == [False, True, True, True, True]
    texts = [policy.tokenizer.decode(row, skip_special_tokens=True) for row in batch["action"]]
    assert texts == ["8", "7", "4", "5", "2"] and batch["action_mask"].all()
    second = policy.tokenizer.decode(episodes[0].turns[1].completion.observation["input_ids"])
    assert re.search("3\\+4=.*8.*no", second) and measure_staleness(batch, ctx, allowed=0) == {}
    assert task.score(episodes[0]) == {"return": 0.5}


def test_a_task_without_rewards_of_turns_is_refused():
    with pytest.raises(ValueError, match="'arithmetic' has no rewards of turns; use task=conversation_log"):
        LoggedConversations().check_task(Arithmetic())


def compose_run(tmp_path, talks, *words) -> list[str]:
    start = ["setting=conversation_log", f"task.path='{talks}'", *QUIET, "data.num_prompts=4", "trainer.max_epochs=1"]
    return [*start, f"run_dir='{tmp_path}/run'", *words]


def test_ilql_learns_from_ones_own_conversations(talks, tmp_path):
    """Q and V are 0 at first, so that the targets are the rewards -1/2, 1, 1, 0, 1 of five of the ten tokens.

    Half of the squared error of both heads is 2 * (1/2) * (1/4 + 1 + 1 + 0 + 1) / 10 = 0.325.
    """
    words = compose_run(tmp_path, talks, "recipe=ilql", "rollout=logged_conversations")
    cli = CLI(to_lightning(compose(words)))
    cli.fit()
    assert float(cli.trainer.callback_metrics["train/q"]) == pytest.approx(0.325, abs=1e-5)
    assert float(cli.trainer.callback_metrics["rollout/score/return"]) == 0.625  # (0.5 + 1 + 0 + 1) / 4


@pytest.mark.parametrize(
    "words",
    [
        ["recipe=filtered_bc"],
        ["recipe=archer", "data.transforms.critic={critic_steps: 1, batch_size: 2, actor_states: 2}"],
    ],
    ids=["filtered_bc", "archer"],
)
def test_further_methods_learn_from_them(talks, tmp_path, words):
    assert main(["fit", *compose_run(tmp_path, talks, *words, "rollout=logged_conversations")]) == 0


def test_a_run_that_would_play_is_refused(talks, tmp_path, capsys):
    assert main(["fit", *compose_run(tmp_path, talks, "recipe=filtered_bc")]) != 0
    message = " ".join(capsys.readouterr().err.split())
    assert "LoggedEpisodes plays others; set rollout=logged_conversations" in message
