"""Labels of lines by binary search, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.advantages.line_labels import LineLabels, LineRewards, PrefixSearch, label_lines
from mmrl.rewards.steps import StepScorer
from tests.laws.example import NoSteps

LAWS = [lambda: LineRewards(NoSteps())]

RIGHT = "a\nb\nc\nd"


def search(lines, last):
    """What a search finds whose prefixes up to `last` lines can be completed, and how many it probes."""
    part, probes = PrefixSearch(lines), 0
    while (probe := part.probe) is not None:
        part.tell(probe <= last)
        probes += 1
    return part.alive, probes


def test_three_probes_find_the_last_of_eight_prefixes():
    # after 0 to 7 lines: [1, 1, 1, 1, 0, 0, 0, 0] and [1, 0, 0, ...]
    assert search(7, 3) == (3, 3) and search(7, 0) == (0, 3)
    assert all(search(7, last) == (last, 3) for last in range(8))
    assert search(0, 0) == (0, 0)


def test_blank_lines_and_comments_are_neutral():
    assert label_lines(["a\n", "\n", "# b\n", "c\n", "d"], 2) == [1, 0, 0, -1, -1]


class Engine:
    """Writes the rest of the right program after every prefix."""

    def sample(self, requests, sampling):
        out = []
        for request in requests:
            rest = RIGHT[0 if request.prefix is None else len(request.prefix) :]
            out.append(completion(rest))
        return out


def completion(text):
    ids = torch.tensor([*map(ord, text)], dtype=torch.long)
    return Completion({}, ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), text)


def context():
    def score(episodes):
        for episode in episodes:
            episode.scores = {"exact": float(episode.output == RIGHT)}

    policy = SimpleNamespace(decode=lambda ids: "".join(map(chr, ids)), token_texts=lambda ids: [*map(chr, ids)])
    collector = SimpleNamespace(score=score)
    return Context(None, Engine(), policy, Sampling(max_tokens=20), seed=0, iteration=0, collector=collector)


def rewards(text, **options):
    episode = Episode(Prompt("p"), 0, 0, [Turn(completion(text))], scores={"exact": float(text == RIGHT)})
    (done,) = LineLabels(continuations=2, **options)([episode], context())
    return done.turns[0].completion.extra["token_rewards"]


def test_rewards_stand_at_the_ends_of_lines():
    # "a", "b" can be completed, "x" and "d" cannot: 1, 1, -1, -1 over four lines, times .25
    assert_close(rewards("a\nb\nx\nd"), torch.tensor([0, 1, 0, 1, 0, -1, -1]) * 0.0625)
    assert_close(rewards(RIGHT), torch.tensor([0, 1, 0, 1, 0, 1, 1]) * 0.0625)
    assert rewards("x\nb\nc\nd").sum() == pytest.approx(-0.25)


def test_the_sum_by_hand():
    """Labels 1, 1, 1, -1, -1, -1, -1 sum to -1: times .25 it is -.25, over seven lines -.035714."""
    text = "a\nb\nc\nx\nx\nx\nx"
    assert rewards(text).sum() == pytest.approx(-0.035714, abs=1e-6)
    assert rewards(text, normalise=False).sum() == pytest.approx(-0.25)


class Probabilities(StepScorer):
    """These probabilities, whatever the steps say."""

    def __init__(self, values):
        self.values = values

    def __call__(self, episodes, steps):
        return [self.values[: len(texts)] for texts in steps]


def predicted(text, probabilities, **options):
    episode = Episode(Prompt("p"), 0, 0, [Turn(completion(text))])
    (done,) = LineRewards(Probabilities(probabilities), **options)([episode], context())
    return done.turns[0].completion.extra["token_rewards"]


def test_a_predicted_label_is_the_expected_one():
    """Probabilities .9, .5, .5, .2 are labels .8, 0, 0 (a comment) and -.6; times .25, over four lines."""
    rewards = predicted("a\nb\n#c\nd", [0.9, 0.5, 0.8, 0.2])
    assert_close(rewards, torch.tensor([0, 0.8, 0, 0, 0, 0, 0, -0.6]) * 0.0625)
    assert_close(predicted("a\nd", [1.0, 0.0], normalise=False), torch.tensor([0, 0.25, -0.25]))


def test_a_certain_model_gives_the_rewards_of_the_search():
    for text, labels in (("a\nb\nx\nd", [1.0, 1.0, 0.0, 0.0]), (RIGHT, [1.0] * 4), ("x\nb\nc\nd", [0.0] * 4)):
        assert_close(predicted(text, labels), rewards(text))


def test_refusals():
    with pytest.raises(ValueError, match="one row"):
        LineRewards(NoSteps())([Episode(Prompt("p"), 0, 0, [])], context())
    with pytest.raises(ValueError, match="continuations"):
        LineLabels(continuations=0)
    with pytest.raises(ValueError, match="one row with a score 'exact'"):
        LineLabels()([Episode(Prompt("p"), 0, 0, [Turn(completion("a"))])], context())


def test_a_program_that_passes_is_not_searched_and_does_not_end_the_search_of_another():
    """Probes of four lines are 2, 3 and none: two passes with two continuations each, of the second program alone."""
    ctx, texts = context(), (RIGHT, "a\nb\nx\nd")
    sizes = []
    sample = ctx.engine.sample
    ctx.engine.sample = lambda requests, sampling: sizes.append(len(requests)) or sample(requests, sampling)
    episodes = [Episode(Prompt("p"), 0, i, [Turn(completion(t))], scores={"exact": float(t == RIGHT)})
                for i, t in enumerate(texts)]  # fmt: skip
    out = [e.turns[0].completion.extra["token_rewards"] for e in LineLabels(continuations=2)(episodes, ctx)]
    assert sizes == [2, 2]
    assert_close(torch.stack(out), torch.tensor([[0, 1, 0, 1, 0, 1, 1], [0, 1, 0, 1, 0, -1, -1]]) * 0.0625)


def test_a_comment_earns_nothing():
    assert_close(rewards("#\nb\nx\nd"), torch.tensor([0, 0, 0, -1, 0, -1, -1]) * 0.0625)


def test_a_continuation_ends_where_the_program_would_have_had_to():
    # the right program has seven characters, so that with six no prefix of it can be completed
    episode = Episode(Prompt("p"), 0, 0, [Turn(completion("a\nb\nx\nd"))], scores={"exact": 0.0})
    (done,) = LineLabels(continuations=1)([episode], replace(context(), sampling=Sampling(max_tokens=6)))
    expected = torch.tensor([0, -1, 0, -1, 0, -1, -1]) * 0.0625
    assert_close(done.turns[0].completion.extra["token_rewards"], expected)
