"""LDC's controller: levels of ratings, labels of sentences, cross-entropy by hand, learning, controlled texts."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, PolicyOutput, Sampling, Turn
from mmrl.engines.local import LocalEngine
from mmrl.methods.generation.ldc.controller import (
    ControlledSentences,
    SentenceLevels,
    StrengthLoss,
    _Text,
    find_level,
)
from mmrl.methods.generation.ldc.policy import LEVELS, SteeringNetworks
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.demonstrations import demonstration
from tasks.grammar.paragraphs import Paragraphs, share_of
from tests.methods.generation.ldc.test_policy import make_policy
from tests.policies.text.oracle import TINY

TASK = Paragraphs(levels=[0], refusals=0.0, objectives="bae", planned=True)
LAWS = [lambda: SentenceLevels()]


class ShareScorer(nn.Module):
    """Rates exactly: 1 + 9 times the share of each letter."""

    device = torch.device("cpu")

    def encode(self, raw):
        return {"ratings": torch.tensor([1 + 9 * share_of(letter, raw["answer"]) for letter in "bae"])}

    def collate(self, rows):
        return {"ratings": torch.stack([row["ratings"] for row in rows])}

    def head_scores(self, columns):
        return columns["ratings"]


def make_context(policy, **models):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return Context(TASK, engine, policy, Sampling(max_tokens=20), 0, 0, models=models, group_size=2)


def write(policy, text, ctx):
    return Episode(TASK[0], 0, 0, [Turn(demonstration(TASK[0].observation, text, ctx))])


def test_levels_are_thirds_of_the_scale():
    """[1, 4) is low, [4, 7) the middle, [7, 10] high."""
    assert [find_level(rating) for rating in (1.0, 3.99, 4.0, 6.99, 7.0, 10.0)] == [0, 0, 1, 1, 2, 2]
    assert LEVELS == (-1.0, 0.0, 1.0)


def test_sentences_are_labelled_where_they_begin():
    """bibi dake: in bibi b has 1, a and e 0: ratings 10, 1, 1; in dake a and e have 1/2: ratings 1, 5.5, 5.5."""
    policy = make_policy()
    ctx = make_context(policy, scorer=ShareScorer())
    (episode,) = SentenceLevels()([write(policy, "bibi dake", ctx)], ctx)
    levels = episode.turns[0].completion.extra["strength_levels"]
    assert levels[0].tolist() == [2, 0, 0] and levels[5].tolist() == [0, 1, 1]
    assert (levels[[1, 2, 3, 4, 6, 7, 8, 9]] == -1).all() and len(levels) == 10
    with pytest.raises(ConfigError, match=r"sentence_levels\.model='scorer' is no model"):
        SentenceLevels()([episode], make_context(policy))
    with pytest.raises(ConfigError, match=r"has 3 heads, and policy\.dimensions is 2"):
        small = make_policy(dimensions=2)
        SentenceLevels()([episode], make_context(small, scorer=ShareScorer()))
    with pytest.raises(ConfigError, match=r"TextPolicy has no strengths; set policy\._target_"):
        SentenceLevels()([episode], make_context(TextPolicy(config=dict(TINY)), scorer=ShareScorer()))


def test_the_loss_by_hand():
    """Logits 0 give log 3 of every dimension; logits (0, 0, log 2) and level 2 give -log(2 / 4) = log 2.

    Of two dimensions the mean is (log 3 + log 2) / 2; no sentence begins with the second token.
    """
    logits = torch.zeros(1, 2, 2, 3)
    logits[0, 0, 1, 2] = math.log(2)
    batch = Batch(strength_levels=torch.tensor([[[0, 2], [-1, -1]]]))
    out = PolicyOutput(torch.zeros(1, 2), torch.zeros(1, 2), extra={"strength_logits": logits})
    loss = StrengthLoss()(out, batch)
    assert_close(loss, torch.tensor([[(math.log(3) + math.log(2)) / 2, 0.0]]))
    wrong = Batch(strength_levels=torch.tensor([[[1, 2], [-1, -1]]]))  # the first of equal logits is 0
    assert StrengthLoss().metrics(out, wrong)["right"].tolist() == [[0.5, 0.0]]
    metrics = StrengthLoss().metrics(out, batch)
    assert metrics["begins"].tolist() == [[1.0, 0.0]] and metrics["right"].tolist() == [[1.0, 0.0]]


def test_the_controller_learns_what_follows():
    """Levels that are those of the sentence before, moved on by one dimension: learned where a GRU sees the sentences.

    The minimum is 0, and without memory of the sentence before it would be that of chance.
    """
    torch.manual_seed(0)
    networks, term = SteeringNetworks(6, 3, 16), StrengthLoss()
    first = torch.randint(3, (64,))
    order = torch.stack([first, (first + 1) % 3, (first + 2) % 3], dim=1)  # [64, 3] the rich dimension of each sentence
    levels = 2 * nn.functional.one_hot(order, 3)
    states = torch.cat([torch.zeros(64, 1, 6), nn.functional.one_hot(order[:, :2], 6).float()], dim=1)
    starts, batch = torch.ones(64, 3, dtype=torch.bool), Batch(strength_levels=levels)
    optimizer = torch.optim.Adam(networks.parameters(), lr=0.05)
    for _ in range(60):
        out = PolicyOutput(None, None, extra={"strength_logits": networks.predict_levels(states, starts)})
        loss = term(out, batch)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    assert loss[:, 1:].mean() < 0.05  # what the sentences before decide
    assert loss[:, 0].mean() > 0.4  # the first one of three is drawn at random


def test_texts_are_written_with_the_strengths_of_each_sentence():
    """Sentence by sentence, the strengths are those that the controller predicts from the text before it."""
    policy = make_policy()
    bias = policy.read_out  # a model that ends sentences often: the logit of the boundary is raised
    policy.read_out = lambda states: bias(states).index_add(
        -1, torch.tensor([policy.boundary]), torch.full((*states.shape[:-1], 1), 30.0)
    )
    ctx = make_context(policy)
    episodes = ControlledSentences(3).collect([(0, TASK[0]), (1, TASK[1])], ctx)
    assert [(e.group, e.sample_index) for e in episodes] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert max(len(e.info["strengths_by_sentence"]) for e in episodes) > 1
    for episode in episodes:
        done = episode.turns[0].completion
        assert not done.action_mask.any() and episode.output == policy.decode(done.action.tolist())
        starts = [0, *((done.action == policy.boundary).nonzero()[:, 0] + 1).tolist()]
        for start, strengths in zip(starts, episode.info["strengths_by_sentence"]):
            expected = policy.predict_strengths(policy.encode(episode.prompt.observation), done.action[:start])
            assert expected.tolist() == strengths
    with pytest.raises(ValueError, match="sentences"):
        ControlledSentences(0)


def test_a_text_goes_on_behind_a_boundary_with_room_left():
    done = demonstration(TASK[0].observation, "a", make_context(make_policy()))
    for ids, goes_on in (([4, 9], True), ([9, 4], False), ([4, 5, 6, 9], False)):
        text = _Text(TASK[0], 0, 0)
        text.add(replace(done, action=torch.tensor(ids)), boundary=9, limit=4)
        assert text.goes_on is goes_on and text.ids.tolist() == ids
    text = _Text(TASK[0], 0, 0)  # two sentences are four tokens
    text.add(replace(done, action=torch.tensor([4, 9])), boundary=9, limit=4)
    text.add(replace(done, action=torch.tensor([5, 9])), boundary=9, limit=4)
    assert not text.goes_on and text.ids.tolist() == [4, 9, 5, 9]


def test_a_text_that_ended_gets_no_further_sentence():
    policy = make_policy()
    ctx = make_context(policy)
    done, counts = demonstration(TASK[0].observation, "bade", ctx), []
    engine = SimpleNamespace(sample=lambda requests, _: counts.append(len(requests)) or [done for _ in requests])
    episodes = ControlledSentences(3).collect([(0, TASK[0])], replace(ctx, engine=engine))
    assert counts == [2] and [len(e.info["strengths_by_sentence"]) for e in episodes] == [1, 1]
