"""Hints for groups that fail: how much of the solution they show, when they stop, and which rows are learned from."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Sampling, Task
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.guidance.ghpo import HintOnFailure
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.text.hints import add_hint
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, decided


class Rewarding(Task):
    """Sums whose solution has 16 letters; an answer is right where enough of the solution stands in its prompt."""

    name, split = "rewarding", "train"

    def __init__(self, needed):
        self.needed, self.sums = needed, Arithmetic()  # characters of the hint, by problem

    def __len__(self):
        return len(self.needed)

    def __getitem__(self, index):
        return replace(self.sums[index], key=f"rewarding/train/{index}")

    def demonstrate(self, index):
        return "abcdefghijklmnop"

    def on(self, split):
        return self

    def score(self, episode):
        hint = episode.prompt.messages[-1]["content"].partition("|")[2]
        first = episode.sample_index == 0  # one completion of the group
        return {"exact": float(first and len(hint) >= self.needed[episode.prompt.index])}


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


def guide(policy, needed, part=None, iteration=0):
    """The groups after the transform, by slot, and the context."""
    task, engine = Rewarding(needed), LocalEngine()
    engine.sync(policy, 0)
    scorer = Scorer(task, WeightedSum({"exact": 1.0}))
    ctx = Context(task, engine, policy, Sampling(max_tokens=3), 0, iteration, group_size=8, collector=scorer)
    sampled = SingleTurn().collect([(10 + i, task[i]) for i in range(len(needed))], ctx)
    scorer.score(sampled)
    return group_episodes((part or HintOnFailure(instruction="|"))(list(sampled), ctx)), sampled, ctx


def hint_of(group):
    (text,) = {episode.prompt.messages[-1]["content"].partition("|")[2] for episode in group}
    return text


def test_hints_grow_until_a_completion_succeeds(policy):
    # 16 letters: round(.25 * 16) = 4, 8 and 12 of them
    groups, sampled, _ = guide(policy, [0, 1, 5, 12, 16])
    assert [hint_of(group) for group in groups.values()] == ["", "abcd", "abcdefgh", "abcdefghijkl", "abcdefghijkl"]
    assert list(groups) == [10, 11, 12, 13, 14] and {len(group) for group in groups.values()} == {8}
    assert [sum(episode.reward for episode in group) for group in groups.values()] == [1, 1, 1, 1, 0]
    assert groups[10] == sampled[:8]  # a group with a success stays
    counts = [sampled[8 * i].info["counts"] for i in range(5)]
    assert [count["hints/groups"] for count in counts] == [0, 1, 1, 1, 1]
    assert [count["hints/solved"] for count in counts] == [0, 1, 1, 1, 0]
    assert [count["hints/episodes"] for count in counts] == [0, 8, 16, 24, 24]


def test_the_loss_sees_the_hinted_prompt_and_trains_the_completion_alone(policy):
    groups, _, ctx = guide(policy, [5, 16])
    episodes = [episode for group in groups.values() for episode in group]
    batch = collate(episodes, policy)
    with torch.no_grad():
        out = policy(batch)
    mask = batch["action_mask"]
    assert_close(out.logprobs[mask], batch["behavior_logprobs"][mask])  # sampled with the hint, scored with the hint
    texts = [policy.decode(row[row != policy.tokenizer.pad_token_id].tolist()) for row in batch["obs.input_ids"]]
    assert all("|abcdefgh" in text for text in texts)
    assert mask.sum(1).max() <= 3  # max_tokens: no token of the hint
    # one of 8 succeeds: mean 1/8, std sqrt(7)/8; the other group fails with the longest hint and has no advantage
    advantages = GroupAdvantage("std", "mean", epsilon=0.0)(batch.select(torch.arange(8)), ctx)["advantages"]
    assert_close(advantages[0, 0], torch.tensor(7 / 7**0.5))
    assert_close(advantages[1:, 0], torch.full((7,), -1 / 7**0.5))
    assert (GroupAdvantage()(batch, ctx)["advantages"][8:] == 0).all()


def test_hinted_completions_are_other_draws_and_iterations_before_the_start_have_no_hints(policy):
    groups, sampled, _ = guide(policy, [16], HintOnFailure((0.0, 0.25), instruction="|"))
    assert [e.output for e in groups[10]] != [e.output for e in sampled]
    waiting = HintOnFailure(start_iteration=2, instruction="|")
    assert hint_of(guide(policy, [16], waiting, iteration=1)[0][10]) == ""
    assert hint_of(guide(policy, [16], waiting, iteration=2)[0][10]) == "abcdefghijkl"


def test_after_a_cold_start_the_hint_is_replaced(policy):
    """HintedPrompts gave half of the solution; the failed group gets a quarter of it and nothing of the first hint."""
    _, _, ctx = guide(policy, [1])
    cold = [(10, add_hint(ctx.task[0], "abcdefghijklmnop", 0.5, "|"))]
    episodes = SingleTurn().collect(cold, ctx)
    for episode in episodes:
        episode.scores = {"exact": 0.0}
    (group,) = group_episodes(HintOnFailure(instruction="|")(episodes, ctx)).values()
    assert hint_of(group) == "abcd"


def test_refusals():
    for wrong in ((), (0.5, 0.25), (0.5, 1.5)):
        with pytest.raises(ValueError, match=r"hint_on_failure\.fractions"):
            HintOnFailure(wrong)


def test_a_group_whose_hinted_completions_all_fail_is_left_out(policy):
    groups, _, ctx = guide(policy, [16])
    (group,) = groups.values()
    sample = ctx.engine.sample
    ctx.engine.sample = lambda *parts: [replace(done, ended="error") for done in sample(*parts)]
    assert HintOnFailure(instruction="|")._sample([(ctx.task[0], group)], 0.5, ctx) == {}
