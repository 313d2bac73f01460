"""GTR: corrected thoughts and their buffer, advantages of turns and the ratio of a turn, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, PolicyOutput, Prompt, Sampling
from mmrl.data.collate import collate
from mmrl.methods.agents.gtr.corrections import CorrectedThoughts, ThoughtColumns, thought_length
from mmrl.methods.agents.gtr.thoughts import ThoughtDemonstrations, ThoughtRollout
from mmrl.methods.agents.gtr.turns import ThoughtSurrogate, TurnAdvantage, TurnValueLoss, first_choice
from mmrl.policies.text.policy import TextPolicy
from tasks.gridworld.layout import Layout
from tasks.gridworld.thoughts import ThoughtGridWorld
from tests.laws.example import Example
from tests.policies.text.oracle import TINY
from tests.text_environments import Count

LAWS = [
    *(Example(TurnAdvantage(0.9, 0.8, whiten), per_row) for whiten in (False, True) for per_row in (False, True)),
    Example(ThoughtSurrogate()),
    Example(ThoughtSurrogate(clip_dual=1.5)),
    Example(TurnValueLoss(), per_row=True),
]

torch.manual_seed(0)
POLICY = TextPolicy(config=TINY).eval()
TASK = ThoughtGridWorld(rows=5, columns=5, max_turns=3)
CORRIDOR = Layout(("#####", "#..G#", "#...#", "#...#", "#####"), (1, 1))  # from row 1, column 1 to column 3


class Corridor(ThoughtGridWorld):
    """The task with one layout."""

    def __getitem__(self, index):
        return Prompt(f"gridworld/train/{index}", super().__getitem__(index).messages, info={"problem": CORRIDOR})


class Says:
    """An engine that writes the next of its texts."""

    def __init__(self, *texts):
        self.texts = list(texts)

    def sample(self, requests, sampling):
        out = []
        for request in requests:
            text = self.texts.pop(0)
            ids = POLICY.tokenize(text)
            seen, extra = POLICY.encode(request.observation), {"temperature": torch.tensor(1.0)}
            mask = torch.ones(len(ids), dtype=torch.bool)
            out.append(Completion(seen, ids, torch.full((len(ids),), -0.5), mask, text, extra=extra))
        return out


def context(*texts, task=None, **options):
    task = task or Corridor(rows=5, columns=5, max_turns=3)
    return Context(task, Says(*texts), POLICY, Sampling(max_tokens=8), seed=0, iteration=0, **options)


def play(*texts):
    ctx = context(*texts)
    (episode,) = ThoughtRollout().collect([(0, ctx.task[0])], ctx)
    return episode


# ---------------------------------------------------------------- thoughts and their corrections


def test_every_thought_is_corrected_and_the_action_is_played():
    # a right thought; a wrong one, whose action is played all the same; no marker, so no action
    episode = play("11,13:R", "99,99:D", "R")
    assert episode.info["corrections"] == [None, "12,13", "22,13"]
    assert episode.info["scores"]["thought_accuracy"] == pytest.approx(1 / 3)
    assert episode.info["counts"] == {"environment/unparsable": 1, "environment/invalid": 0}
    assert [turn.completion.output for turn in episode.turns] == ["11,13:R", "99,99:D", "R"]
    solved = play("11,13:R", "12,13:R")
    assert solved.info["scores"]["exact"] == 1 and [turn.reward for turn in solved.turns] == [0, 1]
    assert solved.info["corrections"] == [None, None]


def test_the_expert_writes_thoughts():
    ctx = context()
    (episode,) = ThoughtDemonstrations().collect([(0, ctx.task[0])], ctx)
    assert [turn.completion.output for turn in episode.turns] == ["11,13:R", "12,13:R"]
    assert episode.info["scores"]["exact"] == 1 and episode.source == "demo"


def test_the_columns_of_a_turn():
    """The format is rewarded where a thought and an action stand around the marker; the last marker counts."""
    episode = play("1:3:R", ":D", "11")
    (marked,) = ThoughtColumns(format_bonus=0.25)([episode], context())
    segments, rewards = (
        [t.completion.extra[name].tolist() for t in marked.turns] for name in ("segment", "token_rewards")
    )
    assert segments == [[0, 0, 0, 0, 1], [0, 1], [1, 1]]
    assert rewards == [[0, 0, 0, 0, 0.25], [0, 0], [0, 0]]
    assert thought_length(["a", "b:c", "d"], ":") == 2
    assert thought_length([], ":") == 0


def test_corrections_are_aggregated_and_imitated():
    columns, buffer = ThoughtColumns(), CorrectedThoughts(samples=2, capacity=3)
    first = columns([play("11,13:R", "99,99:D", "R")], context())
    played, *shown = buffer(first, context())
    assert played is first[0] and len(shown) == 2 and all(e.source == "demo" and len(e.turns) == 1 for e in shown)
    assert {e.output for e in shown} == {"12,13:", "22,13:"}  # the right thought and the marker, without an action
    corrected = {e.output: e.turns[0].completion.observation["input_ids"] for e in shown}
    assert torch.equal(corrected["12,13:"], first[0].turns[1].completion.observation["input_ids"])
    batch = collate([played, *shown], POLICY)
    assert batch["is_demo"].tolist() == [False] * 3 + [True] * 2
    assert batch["action_mask"][3:].sum(1).tolist() == [6, 6] and (batch["segment"][3:, :6] == 0).all()
    assert len(set(batch["group"].tolist())) == 3
    # later iterations draw from all that is known, of which the newest three stay
    buffer(columns([play("a:D", "b:R", "22,13:D")], context()), replace(context(), iteration=1))
    texts = [POLICY.decode(entry["thought"].tolist()) for entry in buffer.state_dict()["buffer"]]
    assert texts == ["22,13:", "11,13:", "21,13:"]
    again = CorrectedThoughts(samples=2, capacity=3)
    again.load_state_dict(buffer.state_dict())
    ctx = replace(context(), iteration=2)
    assert [e.output for e in again([], ctx)] == [e.output for e in buffer([], ctx)]


def test_nothing_is_imitated_before_a_correction():
    episodes = ThoughtColumns()([play("11,13:R", "12,13:R")], context())
    assert CorrectedThoughts()(episodes, context()) == episodes


def test_two_processes_draw_as_one():
    episodes = ThoughtColumns()([play("a:R", "b:R"), replace(play("c:D", "d:R", "e:R"), group=1)], context())
    whole = CorrectedThoughts(samples=3)(episodes, context())[2:]
    sent = []
    CorrectedThoughts()(episodes, context(collector=SimpleNamespace(gather=lambda items: sent.extend(items) or items)))
    parts = []
    for rank in (0, 1):
        ctx = context(rank=rank, world_size=2, collector=SimpleNamespace(gather=lambda items: sent[::-1]))
        parts += CorrectedThoughts(samples=3)([], ctx)
    key = [(e.group, e.output) for e in whole]
    assert len(key) == 3 and sorted((e.group, e.output) for e in parts) == sorted(key)


def test_refusals():
    ctx = context("a:+", task=Count())
    with pytest.raises(ValueError, match="has no correct_thought; choose a task"):
        ThoughtRollout().collect([(0, ctx.task[0])], ctx)
    with pytest.raises(ValueError, match="at most 10 rows and columns, got 11 x 5"):
        ThoughtGridWorld(rows=11, columns=5)
    for wrong in ({"samples": 0}, {"capacity": 0}):
        with pytest.raises(ValueError, match="corrected_thoughts"):
            CorrectedThoughts(**wrong)
    with pytest.raises(ValueError, match=r"gae\.gamma"):
        TurnAdvantage(gamma=1.5)
    with pytest.raises(ValueError, match=r"thought_surrogate\.thought_coef"):
        ThoughtSurrogate(thought_coef=2.0)


# ---------------------------------------------------------------- advantages and losses of turns


def turns(rewards, values, bonus, demos=0):
    """One episode that ends by itself, a row of three choices for each turn, and rows that are demonstrations."""
    n = len(rewards) + demos
    column = torch.zeros(n, 3)
    column[:, 1] = torch.tensor([*bonus, *[0.0] * demos])
    first = torch.tensor([*values, *[9.0] * demos])
    return Batch(
        action_mask=torch.ones(n, 3, dtype=torch.bool),
        values=torch.stack([first, first + 5, first - 3], dim=1),  # only the value before the first token counts
        reward=torch.tensor([*rewards, *[0.0] * demos]),
        token_rewards=column,
        episode=torch.tensor([0] * len(rewards) + list(range(1, demos + 1))),
        step=torch.tensor([*range(len(rewards)), *[0] * demos]),
        is_last=torch.tensor([*[False] * (len(rewards) - 1), True, *[True] * demos]),
        is_demo=torch.tensor([False] * len(rewards) + [True] * demos),
        bootstrap_value=torch.zeros(n),
    )


@pytest.mark.parametrize("bonus", [0.0, 5.0])
def test_advantages_by_hand(bonus):
    # gamma .9, lambda .95: deltas .9 * 2 - 1 = .8, .9 * 3 - 2 = .7, 10 - 3 = 7; with .855 a turn
    # A = 7, .7 + .855 * 7 = 6.685, .8 + .855 * 6.685 = 6.515675; R = A + V, and the bonus is added to R undiscounted
    batch = turns([0.0, 0.0, 10.0], [1.0, 2.0, 3.0], [bonus] * 3, demos=1)
    out = TurnAdvantage(0.9, 0.95, whiten=False)(batch, context())
    assert_close(out["returns"][:3], torch.tensor([7.515675, 8.685, 10.0]) + bonus, atol=1e-5, rtol=0)
    advantages = torch.tensor([6.515675, 6.685, 7.0, -bonus]) + bonus  # 0 for the demonstration
    assert_close(out["advantages"], advantages[:, None].expand(4, 3), atol=1e-5, rtol=0)
    assert out["values"].tolist() == [1, 2, 3, 9]
    whitened = TurnAdvantage(0.9, 0.95)(batch, context())["advantages"]
    assert_close(whitened[:3].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert_close(whitened[:3].std(correction=0), torch.tensor(1.0), atol=1e-5, rtol=0)
    assert (whitened[3] == 0).all()


def test_a_bonus_in_one_turn_does_not_reach_the_others():
    plain, paid = (TurnAdvantage(whiten=False)(turns([0.0, 0.0, 10.0], [1.0, 2.0, 3.0], b), context())["returns"]
                   for b in ([0, 0, 0], [0, 0, 5]))  # fmt: skip
    assert_close(paid - plain, torch.tensor([0.0, 0.0, 5.0]), atol=1e-5, rtol=0)


def test_the_log_prob_of_a_turn_by_hand():
    # thought tokens -2, -4, action -1.2: .5 * -6 - 1.2 = -4.2; without a thought -1.2. Against an old policy of
    # log-probs 0 the ratios are e^-4.2 = .0149956 and e^-1.2 = .301194
    logprobs = torch.tensor([[-2.0, -4.0, -1.2], [-1.2, 0.0, 0.0]], requires_grad=True)
    batch = Batch(
        action_mask=torch.tensor([[True] * 3, [True, False, False]]),
        segment=torch.tensor([[0, 0, 1], [1, -1, -1]]),
        advantages=torch.ones(2, 3),
        behavior_logprobs=torch.zeros(2, 3),
    )
    out = PolicyOutput(logprobs, torch.zeros(2, 3))
    loss, metrics = ThoughtSurrogate().loss_and_metrics(out, batch)
    expected = torch.tensor([[0.0149956] * 3, [0.301194, 1.0, 1.0]])
    assert_close(metrics["ratio"], expected, atol=1e-6, rtol=0)
    assert_close(loss.detach(), -torch.tensor([[0.0149956] * 3, [0.301194, 0.0, 0.0]]), atol=1e-6, rtol=0)
    # at ratio 1 a thought token has half the gradient of an action token
    batch = batch.with_columns(behavior_logprobs=logprobs.detach())
    weights = torch.tensor([[1 / 3] * 3, [1.0, 0.0, 0.0]])
    (ThoughtSurrogate()(out, batch) * weights).sum().backward()
    assert_close(logprobs.grad, torch.tensor([[-0.5, -0.5, -1.0], [-1.0, 0.0, 0.0]]))


def test_the_value_is_that_before_the_first_token():
    mask = torch.tensor([[False, True, True], [True, True, True], [False, False, False]])
    value = torch.arange(9.0).view(3, 3)
    assert first_choice(value, mask).tolist() == [1, 3, 0]
    # 1 of return 2: .5; 3 of return 2.5 from a stored value 2 is near at 2.1: max(.5 ^ 2, .4 ^ 2) / 2 = .125
    batch = Batch(action_mask=mask, returns=torch.tensor([2.0, 2.5, 7.0]), values=torch.tensor([1.0, 2.0, 0.0]))
    out = PolicyOutput(value, value, value)
    assert_close(TurnValueLoss()(out, batch), torch.tensor([0.5, 0.125, 0.0]))
