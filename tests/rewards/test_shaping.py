"""Golden numbers, worked out from the papers' equations."""

import pytest

from mmrl.core.types import Prompt
from mmrl.rewards.function import FunctionReward
from mmrl.rewards.scoring import Scorer
from mmrl.rewards.shaping import (
    cosine_length,
    harmonised_length,
    kimi_length,
    length,
    overlong_penalty,
    repeated_ngrams,
    repetition_penalty,
    tag_format,
)
from tasks.answers import AnswerTask
from tasks.dataset.verify import verify
from tests.tasks.replies import reply


class Digit(AnswerTask):
    """The answer is a digit."""

    name, split = "digit", "train"

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return Prompt("digit/train/0", answer="4")

    def on(self, split):
        return self

    def verify(self, answer, prompt):
        return verify(answer, prompt.answer)


DIGIT = Digit()


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        ("<think>a</think>\n<answer>b</answer>", 1),
        ("<think></think><answer></answer>\n", 1),
        ("<think>a\nb</think><answer>c</answer>", 1),
        ("so <think>a</think><answer>b</answer>", 0),
        ("<think>a</think> so <answer>b</answer>", 0),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a<think>b</think></think><answer>c</answer>", 0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0),
        ("<think>a</think><answer>b", 0),
        ("", 0),
    ],
)
def test_tags(completion, score):
    assert tag_format(completion) == score


def test_other_tags():
    assert tag_format("<plan>x</plan>", tags=["plan"]) == 1


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (0, 0.0),
        (16_384, 0.0),  # the paper's expected maximum
        (16_384 + 1024, -0.25),  # a quarter of the buffer
        (16_384 + 2048, -0.5),
        (20_480, -1.0),
        (30_000, -1.0),
    ],
)
def test_dapos_overlong_penalty(tokens, expected):
    assert overlong_penalty(tokens) == expected


@pytest.mark.parametrize(
    ("tokens", "exact", "expected"),
    [
        (0, 1.0, 2.0),  # r_0 of correct completions: cos 0 = 1
        (500, 1.0, 1.5),  # half way: cos(pi / 2) = 0, the mean of r_0 and r_M
        (250, 1.0, 1.853553390593274),  # 1 + (1 + sqrt(2) / 2) / 2
        (0, 0.0, -10.0),
        (500, 0.0, -5.0),
        (1000, 1.0, -10.0),  # exceeded, correct or not
        (1000, 0.0, -10.0),
    ],
)
def test_cosine_length(tokens, exact, expected):
    assert cosine_length(tokens, exact, max_tokens=1000) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b c d", 0.0),
        ("a b a b", -0.2),  # the pair "a b" occurs again: two words of -0.1
        ("a a a a", -0.3),  # "a a" occurs again at 1 and at 2: words 1, 2 and 3
        ("a", 0.0),
        ("", 0.0),
    ],
)
def test_repetition_of_pairs(text, expected):
    assert repetition_penalty(text, ngram=2, penalty=-0.1) == pytest.approx(expected, abs=1e-12)


def test_limits_that_cannot_be():
    with pytest.raises(ValueError, match="buffer must be in"):
        overlong_penalty(1, max_tokens=10, buffer=11)
    with pytest.raises(ValueError, match="ngram must be at least 1"):
        repetition_penalty("a", ngram=0)


def test_they_are_reward_functions_by_path():
    names = ("tag_format", "length", "overlong_penalty", "cosine_length", "repetition_penalty")
    reward = FunctionReward([f"mmrl.rewards.shaping:{name}" for name in names], in_process=True)
    episode = reply(Prompt("a/train/0", answer="b"), "<think>a</think><answer>b</answer>")
    episode.scores = {"exact": 1.0}
    (scores,) = reward.scores([episode])
    assert set(scores) == set(names)
    assert scores["tag_format"] == 1 and scores["length"] == length(episode.tokens)
    assert scores["cosine_length"] == cosine_length(episode.tokens, 1.0)


def test_kimi_length():
    # 0.5 - (L - 100) / 200 = 0.5, 0, -0.5, 0.25; a wrong completion gets no bonus
    assert kimi_length([""] * 4, [100, 200, 300, 150], [1, 1, 0, 0]) == [0.5, 0.0, -0.5, 0.0]
    assert kimi_length([""] * 2, [70, 70], [1, 0]) == [0.0, 0.0]


def test_harmonised_length():
    # mean length 250 and accuracy 3/4: 250/100 - 1 + 2 (1 - 3/4) = 2, and so on
    each = harmonised_length([""] * 4, [100, 200, 300, 400], [1, 1, 0, 1])
    assert each == pytest.approx([2.0, 0.75, -5 / 3, 0.125], abs=1e-12)
    # 500/50 - 1 + 5/2 = 11.5 and 500/950 - 1 - 5/2 = -2.973684, clipped
    assert harmonised_length([""] * 2, [50, 950], [1, 0], accuracy_weight=5.0) == [4.0, -2.0]
    with pytest.raises(ValueError, match="no tokens"):
        harmonised_length([""] * 2, [0, 3], [1, 0])


def test_repeated_ngrams():
    # five bigrams, three of them distinct: -2 (1 - 3/5)
    assert repeated_ngrams("a b c a b c", ngram=2) == pytest.approx(-0.8, abs=1e-12)
    assert repeated_ngrams("a b", ngram=3) == repeated_ngrams("") == 0.0


def test_a_group_function_is_given_all_completions_of_a_prompt():
    reward = FunctionReward(["mmrl.rewards.shaping:kimi_length"], in_process=True)
    group = [reply(Prompt("toy/train/0"), "x") for _ in range(2)]
    for episode, exact in zip(group, (1.0, 0.0)):
        episode.scores = {"exact": exact}
    assert reward.scores(group) == [{"kimi_length": 0.0}, {"kimi_length": 0.0}]


@pytest.mark.parametrize("opened", ["<think>", "<think>\n"])
def test_a_tag_that_the_prompt_opened_counts(opened):
    """Templates of reasoning models end the prompt with <think>, so completions begin inside of the thought."""
    assert tag_format("First.</think><answer>4</answer>", prompt_end=opened) == 1
    for wrong in ("First.<answer>4</answer>", "<think>First.</think><answer>4</answer>", "</think>4", ""):
        assert tag_format(wrong, prompt_end=opened) == 0
    scorer = Scorer(DIGIT, FunctionReward(["mmrl.rewards.shaping:tag_format"], in_process=True), opened)
    episodes = [reply(Prompt("d/train/0", answer="4"), text) for text in ("First.</think>4", "4", "<answer>4</answer>")]
    scorer.score(episodes)
    assert [episode.scores["tag_format"] for episode in episodes] == [0, 0, 0]
    assert [episode.scores["exact"] for episode in episodes] == [1, 0, 0]  # what is not closed is a thought
    (right,) = (reply(Prompt("d/train/0", answer="4"), "First.</think><answer>4</answer>") for _ in range(1))
    scorer.score([right])
    assert right.reward == 1
