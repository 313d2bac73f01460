"""RLBFF: extractions that are read, filtered and agreed on, by hand; and the questions of a run."""

import pytest

from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Sampling
from mmrl.methods.preferences.rlbff.principles import (
    Extraction,
    FeedbackDemonstrations,
    drop_duplicates,
    partial_ratio,
    read_extractions,
    select_agreed,
    select_grounded,
    trigram_cosine,
)
from mmrl.policies.text.policy import TextPolicy
from tasks.grammar import Grammar
from tasks.judgements.feedback import Feedback, judge
from tests.policies.text.oracle import TINY
from tests.tasks.replies import reply


def extraction(principle, verdict="y", quote=""):
    return Extraction(principle, verdict, quote)


def test_lists_are_read():
    text = "many b|y|full of b; short | n | drags on\n;long|maybe|so long;|y|x;only two|y;many d|p|some d"
    assert read_extractions(text) == [
        Extraction("many b", "y", "full of b"),
        Extraction("short", "n", "drags on"),
        Extraction("many d", "p", "some d"),
    ]
    assert read_extractions("") == []


@pytest.mark.parametrize(
    "quote, text, ratio",
    [
        ("drags on", "full of b, drags on?", 100.0),
        ("abcd", "xxabxdyy", 75.0),  # abxd has three of four letters in order: 2 * 3 / 8
        ("abc", "bc", 100.0),  # the shorter one is found in the longer one
        ("ab", "xa", 2 * 100 / 3),  # the end a alone: 2 * 1 / (2 + 1)
        ("zz", "abc", 0.0),
        ("", "abc", 0.0),
    ],
)
def test_partial_ratio_by_hand(quote, text, ratio):
    assert partial_ratio(quote, text) == pytest.approx(ratio)


def test_of_a_text_as_long_as_the_quote_the_parts_are_the_texts():
    """The part a of aab has one letter of xay: 200 / 4; the parts of xay would have 200 / 5."""
    assert partial_ratio("xay", "aab") == 50 and partial_ratio("aab", "xay") == 40


def test_partial_ratio_has_the_longest_common_subsequence_of_brute_force():
    """All subsequences of the quote in all parts of the text, for words of two letters."""

    def brute(quote, text):
        size, best = len(quote), 0.0
        for start in range(1 - size, len(text)):
            part = text[max(start, 0) : start + size]
            for mask in range(2**size):
                word = [quote[i] for i in range(size) if mask >> i & 1]
                rest = iter(part)
                if all(letter in rest for letter in word):
                    best = max(best, 200 * len(word) / (size + len(part)))
        return best

    for quote, text in (("abab", "bbaabba"), ("aab", "bab"), ("ba", "aaaa"), ("abba", "babaab")):
        assert partial_ratio(quote, text) == pytest.approx(brute(quote, text))


def test_ungrounded_partial_and_helpful_are_left_out():
    """A match of 60 is not above 60: of abcxy three letters are in zzabcdezz, 2 * 3 / 10 in five of them."""
    items = [
        Extraction("many b", "y", "full of b"),
        Extraction("many d", "p", "some d"),
        Extraction("helpful", "y", "good job"),
        Extraction("short", "n", "zzzz"),
    ]
    assert select_grounded(items, "full of b, some d, good job?") == items[:1]
    text = "zzzzzabcdezzzzz"
    assert partial_ratio("abcxy", text) == 60.0
    assert select_grounded([Extraction("many b", "y", "abcxy")], text) == []
    assert select_grounded([Extraction("many b", "y", "abcxy")], text, least=59.0)


def test_a_consensus_needs_every_other_annotator():
    """Best cosines to B and C: p has .85 and .82 and stays, q has .95 and .79 and is dropped."""
    table = {("p", "b1"): 0.85, ("p", "b2"): 0.3, ("p", "c1"): 0.82, ("q", "b2"): 0.95, ("q", "c1"): 0.79}

    def similarity(one, other):
        return table.get((one, other), table.get((other, one), 0.0))

    by_annotator = [[extraction("p"), extraction("q")], [extraction("b1"), extraction("b2")], [extraction("c1")]]
    # b1 and c1 do not name each other's principle: 0
    assert select_agreed(by_annotator, 0.8, similarity) == [extraction("p")]
    assert select_agreed([[extraction("p")]], 0.8, similarity) == []  # nobody to agree with
    assert select_agreed([[extraction("p")], []], 0.8, similarity) == []
    # 0.8 itself is not above 0.8
    assert select_agreed([[extraction("x")], [extraction("y")]], 0.8, lambda one, other: 0.8) == []


def test_duplicates_and_contradictions():
    items = [extraction("many b"), extraction("short", "n"), extraction("many b"), extraction("short", "y")]
    assert drop_duplicates(items) == [extraction("many b")]


def test_trigrams_that_are_repeated_count_by_their_squares():
    """aaaa has aaa twice: 1 + 1 + 4 + 1 = 7, and aaa 4; their product is 1 + 1 + 2 + 1 = 5: 5 / sqrt(28)."""
    assert trigram_cosine("aaaa", "aaa") == pytest.approx(0.944911, abs=1e-6)
    assert trigram_cosine("aaa", "aaaa") == pytest.approx(0.944911, abs=1e-6)


def test_principles_at_the_least_cosine_differ():
    two = [Extraction("many b", "y", "b"), Extraction("short", "n", "short")]
    assert drop_duplicates(two, 0.8, lambda one, other: 0.8) == two
    assert drop_duplicates(two, 0.8, lambda one, other: 0.9) == []


def test_trigram_cosine_by_hand():
    """Trigrams of "ab" and "ac" between blanks: "  a", " ab", "ab " and "  a", " ac", "ac ": one of three."""
    assert trigram_cosine("ab", "ac") == pytest.approx(1 / 3)
    assert trigram_cosine("many b", "many b") == pytest.approx(1) and trigram_cosine("short", "many b") == 0
    assert trigram_cosine("many b", "many d") < 0.8


@pytest.mark.parametrize(
    "code, response, verdict", [("+b", "baba", "y"), ("+b", "badi", "p"), ("+b", "didi", "n"), ("-n", "ba", "y")]
)
def test_verdicts_of_annotators_by_hand(code, response, verdict):
    """Two b of four are grade 3, one is grade 2, none grade 1; two letters of eight leave 3/4 of the best, grade 4."""
    assert judge(code, response) == verdict


def test_annotators_quote_themselves_and_err_at_their_rate():
    task = Feedback(errors=0.25)
    wrong = total = 0
    for index in range(150):
        prompt, problem = task[index], task.problem(index)
        for text, remarks in zip(prompt.info["feedback"], problem.by_annotator):
            assert all(quote in text for _, _, quote in remarks)
            for words, verdict, _ in remarks:
                code = {"short": "-n"}.get(words, f"+{words[-1]}")
                if words != "helpful" and verdict != "p" and judge(code, problem.response) != "p":
                    wrong, total = wrong + (verdict != judge(code, problem.response)), total + 1
    # standard deviation below sqrt(.25 * .75 / 300) = .025
    assert total > 300 and abs(wrong / total - 0.25) < 0.1
    assert task.score(reply(task[0], task[0].answer))["exact"] == 1


class OnePrinciple(FeedbackDemonstrations):
    """Stands in for a trained extractor, where the model of a tiny run writes no lists."""

    def _ask(self, slot, prompt, by_annotator, ctx):
        return super()._ask(slot, prompt, [[extraction("many b")]] * 2, ctx)


class Lists:
    """Engine with a list of principles for each feedback; `requests` are those that it was asked."""

    def __init__(self, lists):
        self.lists, self.requests = lists, []

    def sample(self, requests, sampling):
        self.requests += requests
        texts = [self.lists[request.observation["messages"][0]["content"]] for request in requests]
        return [Completion({}, None, None, None, output=text) for text in texts]


@pytest.fixture(scope="module")
def policy():
    return TextPolicy(config=dict(TINY))


def test_the_questions_of_a_response(policy):
    """Both annotators say many b; short is of one alone; of the third list the quote of many b is not in the text."""
    task = Feedback(annotators=2)
    prompt = task[0]
    prompt.info.update(response="baba", feedback=("full of b, drags on?", "b all over?"))
    lists = {"full of b, drags on?": "many b|y|full of b;short|n|drags on", "b all over?": "many b|y|b all over"}
    engine, rollout = Lists(lists), FeedbackDemonstrations()
    ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0)
    episodes = rollout.collect([(3, prompt)], ctx)
    assert [(e.prompt.messages[0]["content"], e.output, e.group) for e in episodes] == [("many b baba?", "y", 3)]
    assert {request.model for request in engine.requests} == rollout.sampled_models() == {"extractor"}
    counts = {name.removeprefix("rollout/principles_"): value for name, value in rollout.metrics().items()}
    assert counts == {"extracted": 3, "grounded": 3, "agreed": 2, "distinct": 1}
    assert task.score(episodes[0])["exact"] == 1  # two b of four satisfy it
    engine.lists["b all over?"] = "many b|y|wonderful"
    assert rollout.collect([(3, prompt)], ctx) == [] and rollout.metrics()["rollout/principles_grounded"] == 2


def test_wrong_arguments_are_refused(policy):
    for wrong, word in (
        ({"template": "{response}?"}, "principle"),
        ({"least_match": 101.0}, "least_match"),
        ({"least_cosine": 1.5}, "least_cosine"),
        ({"max_tokens": 0}, "max_tokens"),
    ):
        with pytest.raises((ConfigError, ValueError), match=word):
            FeedbackDemonstrations(**wrong)
    ctx = Context(Grammar(), Lists({}), policy, Sampling(), seed=0, iteration=0)
    with pytest.raises(ConfigError, match="task=feedback"):
        FeedbackDemonstrations().collect([(0, Grammar()[0])], ctx)
    with pytest.raises(ValueError, match="errors"):
        Feedback(errors=2.0)
