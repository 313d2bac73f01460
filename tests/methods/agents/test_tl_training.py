"""TL-Training: failed calls are not imitated, key tokens by hand, and the weighted loss by hand."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.agents.tl_training import KeyTokenMean, KeyTokens, MaskFailedCalls, find_key_characters
from tasks.calls.match import parse_calls
from tasks.calls.rewards import error_penalty
from tasks.calls.trajectories import CallTrajectories
from tests.tasks.replies import reply

TASK = CallTrajectories(tools=["find_flight", "buy_ticket", "set_alarm", "add_event"], offered=2, irrelevant=0.0)
CTX = Context(TASK, None, SimpleNamespace(token_texts=lambda ids: [*map(chr, ids)]), Sampling(), seed=0, iteration=0)


def answer(text, names=()):
    """An episode whose answer has a token for each character, and one for the end."""
    ids = torch.tensor([*map(ord, text), 0])
    done = Completion({}, ids, torch.zeros(len(ids)), torch.ones(len(ids), dtype=torch.bool), text)
    return Episode(Prompt("p", (), info={"parameters": {name: [] for name in names}}), 0, 0, [Turn(done)])


def weights_of(mask, key, **options):
    batch = Batch(action_mask=torch.tensor(mask).bool(), key_tokens=torch.tensor(key).bool())
    return KeyTokenMean(**options)(batch, lambda number: number)


def test_the_weighted_loss_by_hand():
    """Key losses 2 and 1 among six of .1: w = 6 / 2 = 3, (3 * 3 + .6) / (3 * 2 + 6) = .8.

    Two of each are balanced: (2 + 1 + .5 + .5) / 4 = 1. One key token among 99 others counts 9, not 99:
    its share is 9 / 108.
    """
    losses = torch.tensor([2, 1, *[0.1] * 6])
    assert_close((weights_of([[1] * 8], [[1, 1, *[0] * 6]])[0] * losses).sum(), torch.tensor(0.8))
    balanced = weights_of([[1] * 4], [[1, 1, 0, 0]])[0]
    assert_close((balanced * torch.tensor([2, 1, 0.5, 0.5])).sum(), torch.tensor(1.0))
    assert_close(weights_of([[1] * 100], [[1] + [0] * 99])[0, 0], torch.tensor(9 / 108))
    assert_close(weights_of([[1] * 100], [[1] + [0] * 99], max_weight=1.0)[0], torch.full((100,), 0.01))
    # more key tokens than others: 1; without any: 1; a row without a choice counts no row
    rows = weights_of([[1, 1, 1, 0], [1, 1, 0, 0], [0] * 4], [[1, 1, 0, 1], [0] * 4, [1] * 4])
    assert_close(rows, torch.tensor([[1 / 6] * 3 + [0], [1 / 4] * 2 + [0] * 2, [0.0] * 4]))
    with pytest.raises(ValueError, match=r"data\.weighting\.max_weight"):
        KeyTokenMean(0.5)


@pytest.mark.parametrize(
    ("name", "others", "places"),
    [
        ("find_flight", ["find_flight", "find_film", "set_alarm"], {0, 6}),  # find_f is common
        ("set_alarm", ["set_light", "add_event"], {0, 4}),
        ("find", ["find_film"], {0, 4}),  # the quotation mark behind the name
        ("weather", [], {0}),
    ],
)
def test_key_characters_by_hand(name, others, places):
    assert find_key_characters(name, others) == places


def test_key_tokens_are_those_of_the_names_of_all_calls():
    text = '[{"name": "set_alarm", "arguments": {"name": 3}}, {"name":"add", "arguments": {}}]'
    (episode,) = KeyTokens()([answer(text, ["set_alarm", "set_light", "add", "adds"])], CTX)
    marked = episode.turns[0].completion.extra["key_tokens"]
    start, other = text.index("set_alarm"), text.index("add")
    assert marked.nonzero().flatten().tolist() == [start, start + 4, other, other + 3]
    (none,) = KeyTokens()([answer("no call", ["add"])], CTX)
    assert not none.turns[0].completion.extra["key_tokens"].any()
    with pytest.raises(ValueError, match="has no info 'parameters'"):
        KeyTokens()([reply(Prompt("p", ()), "{}")], CTX)


def test_a_token_of_several_characters_is_marked_once():
    policy = SimpleNamespace(token_texts=lambda ids: ['{"na', 'me": "', "set_", "ala", 'rm"', "}", ""])
    episode = answer('{"name": "set_alarm"}', ["set_alarm", "set_light", "set_all"])
    done = episode.turns[0].completion
    episode = replace(episode, turns=[Turn(replace(done, action=done.action[:7]))])
    (marked,) = KeyTokens()([episode], replace(CTX, policy=policy))
    # s of set_ begins, a differs from l (place 4), a differs from l of all (place 6)
    assert marked.turns[0].completion.extra["key_tokens"].tolist() == [0, 0, 1, 1, 0, 0, 0]


def demonstrated(index):
    turns = [Turn(answer(text).turns[0].completion) for _, text in TASK.demonstrations([TASK[index]])[0]]
    return Episode(TASK[index], index, 0, turns, source="demo")


def test_failed_calls_are_masked_and_right_ones_stay():
    episodes = [demonstrated(index) for index in range(60)]
    masked = MaskFailedCalls()(episodes, CTX)
    assert 15 < sum(len(e.turns) == 2 for e in episodes) < 45  # half of them fail
    for before, after in zip(episodes, masked):
        masks = [turn.completion.action_mask for turn in after.turns]
        assert after.turns[-1] is before.turns[-1] and masks[-1].all() and not any(m.any() for m in masks[:-1])
    assert MaskFailedCalls("timeout")(episodes, CTX) == episodes
    with pytest.raises(ValueError, match="choose rollout=demonstrations"):
        MaskFailedCalls()([replace(episodes[0], source="policy")], CTX)
    with pytest.raises(ValueError, match="no regular expression"):
        MaskFailedCalls("(")


def test_failed_calls_fail_for_the_reason_of_their_error():
    """The error is read again by TL-Training's table, which knows nothing of how the call was broken."""
    kinds = {"unknown tool": -2.0, "unknown parameter": -1.3, "missing parameter": -0.5}
    seen = set()
    for index in range(120):
        prompt, turns = TASK[index], TASK.demonstrations([TASK[index]])[0]
        assert parse_calls(turns[-1][1]) == prompt.info["right"]
        if len(turns) == 2:
            kind, name = re.fullmatch(r"error: (\w+ \w+) (\w+)", turns[1][0]["messages"][-1]["content"]).groups()
            seen.add(kind)
            assert error_penalty(turns[0][1], **prompt.info) == kinds[kind]
            assert (name in turns[0][1]) == (kind != "missing parameter")
            question = prompt.messages[0]["content"]
            assert kind != "missing parameter" or f"{name}: " in question  # no optional one, which is shown as name?
    assert seen == set(kinds)
