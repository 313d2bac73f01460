"""Pairwise-RL: probabilities over both orders by hand, and values in the context with the anchor."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE
from mmrl.annotators.values import Values
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.preferences.pairwise_rl import (
    AnchorContext,
    AnchoredPreference,
    ContextValue,
    ContextValues,
    win_probability,
)
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.labels import LabelGrader
from mmrl.rewards.judges.questions import Reply
from mmrl.rewards.judges.reward import JudgeReward
from tasks.grammar import Grammar
from tasks.judgements.comparisons import PrincipleChoice
from tests.laws.example import Example
from tests.policies.text.oracle import TINY, completions, decided
from tests.tasks.replies import reply

LAWS = [
    AnchorContext,
    *(Example(ContextValue(clip, context="blind"), per_row) for clip in (None, 0.1) for per_row in (False, True)),
    Example(ContextValues(context="clean"), scores=True),
]
TASK = Grammar(levels=[0], refusals=0.0)


def group_of(*answers):
    return [reply(TASK[i], answer) for i, answer in enumerate(answers)]


def test_the_numbers_by_hand():
    """(0.8 + 1 - 0.3) / 2 = 0.75, whose odds are 3: log 3 = 1.098612. A judge of the place gives 1/2: log 1 = 0."""
    assert win_probability(0.8, 0.3) == pytest.approx(0.75)
    assert win_probability(0.5, 0.5) == win_probability(0.9, 0.9) == 0.5
    group, verdicts = group_of("baba", "kaki", "dede"), [[0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [0.9, 0.1], [1, 0], [0, 1]]
    assert [s["judge"] for s in AnchoredPreference().combine(group, verdicts)] == pytest.approx([0.75, 0.5, 1.0])
    odds = [s["judge"] for s in AnchoredPreference(log_odds=True, least=0.01).combine(group, verdicts)]
    assert odds == pytest.approx([1.098612, 0.0, math.log(99)], abs=1e-6)  # 1 is kept at 0.99
    assert AnchoredPreference().count(verdicts) == {"inconsistent": 1}  # the second prefers the first place twice


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.9), (0.9, 0.5), (0.2, 0.9), (0.5, 0.5)])
def test_orders_without_a_preferred_place_are_consistent(first, second):
    assert AnchoredPreference().count([[first], [second]]) == {"inconsistent": 0}


def test_a_judge_of_the_place_gives_no_advantage():
    """Reward 0.5 with values 0.5 that expect it: every temporal difference is 0, and so is the advantage."""
    form = AnchoredPreference()
    [score] = form.combine(group_of("baba"), [[0.9, 0.1], [0.9, 0.1]])
    batch = Batch(
        episode=torch.tensor([0]), step=torch.tensor([0]), reward=torch.tensor([score["judge"]]),
        values=torch.full((1, 3), 0.5), bootstrap_value=torch.zeros(1), action_mask=torch.ones(1, 3, dtype=torch.bool),
        is_last=torch.tensor([True]),
    )  # fmt: skip
    advantages = GAE(gamma=1.0)(batch, Context(None, None, None, Sampling(), seed=0, iteration=0))["advantages"]
    assert_close(advantages, torch.zeros(1, 3))


class Biased(LanguageJudge):
    """Log-odds of the first place: 2 for the place, and the lead in letters b."""

    def reply(self, questions):
        replies = []
        for question in questions:
            _, first, second = question.text.removesuffix("?").split()
            replies.append(Reply("", options={"1": 2.0 + first.count("b") - second.count("b"), "2": 0.0}))
        return replies


def test_both_orders_of_a_judge_with_a_preferred_place():
    """Lead 1 of the answer: (sigmoid(3) + 1 - sigmoid(1)) / 2 = (0.952574 + 1 - 0.731059) / 2 = 0.610758."""
    prompts = [replace(TASK[0], answer="badi"), replace(TASK[1], answer="kaki"), Prompt("grammar/train/2")]
    group = [reply(prompts[0], "babi"), reply(prompts[1], "kade")]
    reward = JudgeReward(Biased(), AnchoredPreference(PrincipleChoice("+b")), {"judge": 1.0})
    assert [s["judge"] for s in reward.scores(group)] == pytest.approx([0.610758, 0.5], abs=1e-6)
    with pytest.raises(ValueError, match="has none; take a task with answers"):
        reward.scores([reply(prompts[2], "ba")])


def test_an_order_without_a_verdict_is_no_score():
    lost = NoAnswer("late")
    group, verdicts = group_of("baba", "kaki"), [[0.8, 0.2], lost, [0.8, 0.2], [0.2, 0.8]]
    first, second = AnchoredPreference().combine(group, verdicts)
    assert first is lost and second["judge"] == pytest.approx(0.8)
    assert AnchoredPreference().count(verdicts) == {"inconsistent": 0}


def test_a_language_model_is_asked_for_a_letter():
    question = LabelGrader().ask(group_of("baba")[0], ["baba", "kaki"])
    assert question.options == ("a", "b") and "<answer.A-" in question.text and "Reply with one letter" in question.text
    assert question.read(Reply("", options={"a": math.log(0.6), "b": math.log(0.2)})) == pytest.approx([0.75, 0.25])
    assert question.read(Reply("", options={"a": -2000.0, "b": 0.0})) == [0.0, 1.0]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=TINY, value_head=True)).eval()
    torch.nn.init.normal_(policy.value_head.weight)
    return policy


def play(policy, prompts):
    done = completions(policy, prompts, Sampling(max_tokens=4))
    return [Episode(prompt, i, 0, [Turn(replace(c, prompt_id=i))]) for i, (prompt, c) in enumerate(zip(prompts, done))]


def test_values_are_those_of_the_prompt_with_the_anchor(policy):
    """Against the plain values of the same answers to prompts that hold the anchor as their text."""
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0)
    prompts = [Prompt(f"t/train/{i}", ({"role": "user", "content": "#1?"},), answer=a) for i, a in enumerate("xyy")]
    episodes = AnchorContext(template=" {anchor}")(play(policy, prompts), ctx)
    shown = [{"role": "user", "content": f"#1? {prompt.answer}"} for prompt in prompts]
    by_hand = [
        replace(e, turns=[replace(t, completion=replace(t.completion, observation=policy.encode({"messages": (m,)})))])
        for e, m, t in ((e, m, e.turns[0]) for e, m in zip(episodes, shown))
    ]
    batch = collate(episodes, policy)
    values = ContextValues()(batch, ctx)["values"]
    mask = batch["action_mask"]
    assert_close(values[mask], Values()(collate(by_hand, policy), ctx)["values"][mask])
    assert (values - Values()(batch, ctx)["values"])[mask].abs().min() > 1e-6  # the plain prompt has other values
    # the log-probs of the policy are those of the prompt without the anchor
    assert_close(policy(batch).logprobs[mask], batch["behavior_logprobs"][mask])


def test_the_value_is_fitted_in_the_context_with_the_anchor():
    """0.5 * (0.75 - 0.25)^2 = 0.125 in the context, whatever the values of the plain prompt are."""
    values = torch.tensor([[0.25, 9.0]], requires_grad=True)
    out = PolicyOutput(torch.zeros(1, 2), torch.zeros(1, 2), torch.full((1, 2), 7.0))
    out.others["anchor"] = PolicyOutput(torch.zeros(1, 2), torch.zeros(1, 2), values)
    batch = Batch(action_mask=torch.tensor([[True, False]]), returns=torch.tensor([[0.75, 0.0]]))
    loss = ContextValue()(out, batch)
    assert_close(loss, torch.tensor([[0.125, 0.0]]))
    loss.sum().backward()
    assert_close(values.grad, torch.tensor([[-0.5, 0.0]]))
    with pytest.raises(KeyError, match="context_value: no pass 'other'"):
        ContextValue(context="other")(out, batch)


def test_episodes_of_several_rows_are_refused(policy):
    [episode] = play(policy, [Prompt("t/train/0", ({"role": "user", "content": "#"},), answer="x")])
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0)
    with pytest.raises(ValueError, match=r"'t/train/0' has 2"):
        AnchorContext()([replace(episode, turns=[*episode.turns] * 2)], ctx)


@pytest.mark.parametrize("wrong", [{"least": 0.0}, {"least": 0.5}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(ValueError):
        AnchoredPreference(**wrong)
    with pytest.raises(ConfigError, match=r"principle_choice\.principle"):
        PrincipleChoice("b")
