"""LDC's dials: the combined score and the reward by hand, strengths of prompts, the scorer's ratings, responses."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, Prompt, Sampling, Turn
from mmrl.engines.local import LocalEngine
from mmrl.methods.generation.ldc.dials import (
    DialResponse,
    DialReward,
    Dials,
    combine,
    one_dial,
    read_strengths,
    set_strengths,
    state_strengths,
)
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.grammar.paragraphs import Paragraphs
from tests.methods.generation.ldc.test_policy import make_policy
from tests.policies.text.oracle import TINY

TASK = Paragraphs(levels=[0], refusals=0.0, objectives="bae")
WEIGHTS = {"b": 0.5, "a": 0.2, "e": 0.3}
SCORES = ("share_b", "share_a", "share_e")


def make_context(policy=None, **arguments):
    engine = LocalEngine()
    if policy is not None:
        engine.sync(policy, 0)
    return Context(TASK, engine, policy, Sampling(max_tokens=4), 0, 0, **arguments)


def rated(ratings, strengths=None):
    info = {} if strengths is None else {"strengths": strengths}
    return Episode(Prompt("p/0", info=info), 0, 0, scores={f"rating_{n}": r for n, r in zip(WEIGHTS, ratings)})


def test_the_combined_score_by_hand():
    """Weights .5, .2, .3 and ratings 7, 6, 8: 3.5 + 1.2 + 2.4 = 7.1."""
    assert combine(WEIGHTS, {"b": 7.0, "a": 6.0, "e": 8.0}) == pytest.approx(7.1)


def test_the_reward_by_hand():
    """Ratings 10, 1, 5.5 are z = 1, -1, 0: 1 of b set high, 1 of a set low, 0 of e; .5 - .2 = .3 of all of them.

    With combined = .1: 1 + .03; without a dial .03 alone.
    """
    reward = DialReward(dict(WEIGHTS), combined=0.1)
    episodes = [rated((10.0, 1.0, 5.5), c) for c in ((1, 0, 0), (0, -1, 0), (0, 0, 1), (-1, 0, 0), None)]
    assert_close(torch.tensor(reward(episodes)), torch.tensor([1.03, 1.03, 0.03, -0.97, 0.03]))
    with pytest.raises(ValueError, match="has 2 strengths"):
        reward([rated((1.0, 1.0, 1.0), (1, 0))])


def test_one_dial_is_set_high_or_low():
    assert [one_dial(i, 2) for i in range(4)] == [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)]
    prompts = [(slot, TASK[slot]) for slot in range(12)]
    fixed = [Dials(SingleTurn(), list("bae"), draw=False).set(slot, p, make_context()) for slot, p in prompts]
    assert [prompt.info["strengths"] for prompt in fixed] == [one_dial(slot % 6, 3) for slot in range(12)]
    dials = Dials(SingleTurn(), list("bae"))
    drawn = [dials.set(slot, p, make_context()) for slot, p in prompts]
    assert drawn == [dials.set(slot, p, make_context()) for slot, p in prompts]
    assert len({prompt.info["strengths"] for prompt in drawn}) > 3
    assert all(prompt.observation["strengths"] == prompt.info["strengths"] for prompt in drawn)
    assert drawn[0].messages == TASK[0].messages and drawn[0].key == TASK[0].key


def test_strengths_can_stand_in_the_text_of_a_prompt():
    prompt = Prompt("p/0", ({"role": "user", "content": "#1?"},))
    assert state_strengths(prompt, ("b", "a"), (1.0, -1.0)).messages[-1]["content"] == "#1? <b> 1.0 <a> -1.0"
    asked = Dials(SingleTurn(), ["b", "a"], draw=False, stated=True).set(1, prompt, make_context())
    assert asked.messages[-1]["content"] == "#1? <b> -1.0 <a> 0.0" and "strengths" not in asked.observation
    with pytest.raises(ValueError, match="does not end with a text"):
        state_strengths(Prompt("p/0"), ("b",), (1.0,))


def test_steered_prompts_are_played():
    policy = make_policy(dimensions=3)
    ctx = make_context(policy, group_size=2)
    episodes = Dials(SingleTurn(), list("bae"), draw=False).collect([(0, TASK[0]), (3, TASK[1])], ctx)
    assert [e.prompt.info["strengths"] for e in episodes] == [one_dial(0, 3)] * 2 + [one_dial(3, 3)] * 2
    for episode in episodes:
        kept = episode.turns[0].completion.observation["strengths"]
        assert tuple(kept.tolist()) == episode.prompt.info["strengths"]
    assert episodes[0].light().prompt.info["strengths"] == one_dial(0, 3)


def test_ratings_are_those_of_the_scorer_s_heads():
    torch.manual_seed(0)
    scorer = ScoringPolicy(config=dict(TINY), heads=list("bae")).eval()
    episodes = []
    for i, text in enumerate(("bade", "ki", "baba dede")):
        done = SimpleNamespace(output=text)
        episodes.append(Episode(TASK[i], i, 0, [Turn(done)]))
    reward = DialReward(dict(WEIGHTS), batch_size=2).bind(make_context(models={"scorer": scorer}))
    for episode, scores in zip(episodes, reward.scores(episodes)):
        row = scorer.encode({"messages": list(episode.prompt.messages), "answer": episode.output})
        with torch.no_grad():
            heads = scorer.head_scores(scorer.collate([row]))[0].tolist()
        assert_close([scores[f"rating_{name}"] for name in "bae"], heads, atol=1e-5, rtol=1e-5)
        assert scores["rating"] == pytest.approx(0.5 * heads[0] + 0.2 * heads[1] + 0.3 * heads[2], abs=1e-5)
    two = DialReward({"b": 1.0, "a": 1.0}).bind(make_context(models={"scorer": scorer}))
    with pytest.raises(ConfigError, match=r"has 2 dimensions, and model\.frozen_models\.scorer has 3 heads"):
        two.scores(episodes)
    with pytest.raises(ConfigError, match=r"reward\.model='scorer' is no model of the run"):
        DialReward(dict(WEIGHTS)).bind(make_context())
    with pytest.raises(ConfigError, match="outside of its rollouts"):
        DialReward(dict(WEIGHTS)).scores(episodes)


def test_responses_by_hand():
    """b: share_b .8 - .2 = .6, share_a .3 - .4 = -.1, share_e 0: own .6, cross .1. a: own .1, cross .3 of share_b.

    e: own .4, cross 0. Means: own (.6 + .1 + .4) / 3 = .3667, cross (.1 + .3 + 0) / 3 = .1333; b and e are selective.
    """
    means = {
        one_dial(0, 3): (0.8, 0.3, 0.3),
        one_dial(1, 3): (0.2, 0.4, 0.3),
        one_dial(2, 3): (0.6, 0.5, 0.3),
        one_dial(3, 3): (0.3, 0.4, 0.3),
        one_dial(4, 3): (0.3, 0.3, 0.7),
        one_dial(5, 3): (0.3, 0.3, 0.3),
    }
    episodes = [
        Episode(Prompt(f"p/{i}", info={"strengths": c}), i, 0, scores=dict(zip(SCORES, [v + d for v in values])))
        for i, (c, values) in enumerate(means.items())
        for d in (-0.1, 0.1)
    ]
    numbers = DialResponse(SCORES)(episodes)
    assert numbers["own/share_b"] == pytest.approx(0.6) and numbers["cross/share_b"] == pytest.approx(0.1)
    assert numbers["own/share_a"] == pytest.approx(0.1) and numbers["cross/share_a"] == pytest.approx(0.3)
    assert numbers["own"] == pytest.approx(1.1 / 3) and numbers["cross"] == pytest.approx(0.4 / 3)
    assert numbers["selective"] == 2.0 and numbers["errors"] == 0.0
    part = DialResponse(SCORES)(episodes[:4])  # the dial of b alone
    assert part["own/share_b"] == pytest.approx(0.6) and part["selective"] == 1.0
    assert math.isnan(part["own/share_a"]) and math.isnan(part["cross/share_e"]) and math.isnan(part["own"])
    with pytest.raises(KeyError, match="draw=false"):
        DialResponse(SCORES)([Episode(Prompt("p/0"), 0, 0, scores=dict.fromkeys(SCORES, 0.0))])


def test_names_of_dimensions_are_refused():
    for build in (lambda: Dials(SingleTurn(), "bae"), lambda: DialReward({"b": 1.0}), lambda: DialResponse(["b", "b"])):
        with pytest.raises(ValueError, match="at least two different dimensions"):
            build()
    assert read_strengths(Prompt("p/0"), 2) == (0.0, 0.0)
    assert set_strengths(Prompt("p/0"), [1]).strengths == (1.0,)


def test_the_paper_s_dimensions_have_a_third_each():
    assert list(DialReward().weights.values()) == pytest.approx([1 / 3] * 3)
    assert DialReward(dict(WEIGHTS)).weights == WEIGHTS


def test_a_dial_that_turns_another_score_as_much_is_not_selective():
    """b changes its own score and that of a by 1/2; the others change nothing, 0 against 0."""
    scores = {one_dial(n, 3): dict.fromkeys(SCORES, 0.0) for n in range(6)}
    scores[one_dial(0, 3)] |= {"share_b": 0.5, "share_a": 0.5}
    episodes = [Episode(Prompt("p/0", info={"strengths": c}), 0, 0, scores=values) for c, values in scores.items()]
    numbers = DialResponse(SCORES)(episodes)
    assert (numbers["own/share_b"], numbers["cross/share_b"], numbers["selective"]) == (0.5, 0.5, 0.0)
