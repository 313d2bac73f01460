"""HuatuoGPT-o1: coarse rewards and headings by hand, and a search whose attempts are scripted."""

import pytest
import torch

from mmrl.core.types import Completion, Context, Sampling
from mmrl.methods.search.huatuogpt.traces import (
    STRATEGIES,
    ChainAttempt,
    RevisionDemonstrations,
    SearchedTraces,
    choose_strategy,
    coarse_reward,
    read_response,
    write_context,
    write_trace,
)
from mmrl.policies.text.policy import TextPolicy
from tasks.arithmetic.task import Arithmetic
from tests.policies.text.oracle import TINY

TASK = Arithmetic(digits=[1, 1, 1], steps=True)
RIGHT = "## Thinking\n11\n12\n## Final Response\n12"


@pytest.mark.parametrize(
    "text, response",
    [
        (RIGHT, "12"),
        ("## Thinking\nx\n\n## Final Response\n\n12\n", "12"),
        ("12", None),
        ("## Thinking\nx\n12", None),
        ("## Final Response\n12\n## Thinking\nx", None),  # the wrong order
        (RIGHT + "\n## Final Response\n12", None),  # twice
        ("the ## Thinking\nx\n## Final Response\n12", None),
    ],
)
def test_responses_are_read(text, response):
    assert read_response(text) == response


def test_rewards_by_hand():
    """With a summed KL of 4 at b = .03: 1 - .12 = .88, .1 - .12 = -.02; without the form and with a KL of 0: 0."""
    assert coarse_reward(0.9) - 0.03 * 4 == pytest.approx(0.88)
    assert coarse_reward(0.1) - 0.03 * 4 == pytest.approx(-0.02)
    assert coarse_reward(None) == 0.0
    assert coarse_reward(0.4) == 0.1 and coarse_reward(0.41) == 1.0


def test_a_trace_by_hand():
    attempts = [ChainAttempt("", "11\n13"), ChainAttempt("verify", "11\n12")]
    assert write_trace(attempts) == "## Thinking\n11\n13\nLet me check.\n11\n12\n## Final Response\n12"
    assert write_context("3+8+1=", [], "verify") == "3+8+1="
    assert write_context("3+8+1=", attempts[:1], "correct") == "3+8+1=\n11\n13\nThat is wrong.\n"


def test_backtracking_needs_an_earlier_revision():
    first = {choose_strategy(0, draw / 12) for draw in range(12)}
    assert first == set(STRATEGIES) - {"backtrack"}
    later = [choose_strategy(1, draw / 12) for draw in range(12)]
    assert {name: later.count(name) for name in STRATEGIES} == dict.fromkeys(STRATEGIES, 3)


class Scripted:
    """Engine that answers from a list; `asked` are the texts of the requests."""

    def __init__(self, texts):
        self.texts, self.asked = list(texts), []

    def sample(self, requests, sampling):
        self.asked += [request.observation["messages"][-1]["content"] for request in requests]
        return [Completion({}, None, None, None, output=self.texts.pop(0)) for _ in requests]


class FirstAttempt(SearchedTraces):
    """Stands in for a trained searcher, where the model of a tiny run finds no answer: the first attempt is right."""

    def __init__(self, **options):
        super().__init__(**{**options, "depth": 0, "restarts": 1, "score_name": "format"})

    def _try(self, prompts, attempts, trial, ctx):
        super()._try(prompts, attempts, trial, ctx)
        text = "1"
        return [(ChainAttempt("", text), Completion({}, None, None, None, output=text)) for _ in prompts]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return TextPolicy(config=dict(TINY))


def test_a_search_by_hand(policy):
    """Wrong, wrong with one revision, then the search begins again: wrong, and right by its revision."""
    prompt = TASK[0]
    right, wrong = TASK.demonstrate(0), f"0\n{prompt.answer + 1}"
    engine = Scripted([wrong, wrong, wrong, right])
    rollout = SearchedTraces(depth=1, restarts=2)
    ctx = Context(TASK, engine, policy, Sampling(), seed=0, iteration=0)
    (episode,) = rollout.collect([(5, prompt)], ctx)
    question = prompt.messages[0]["content"]
    assert engine.asked[0] == engine.asked[2] == question
    assert all(text.startswith(f"{question}\n{wrong}\n") for text in (engine.asked[1], engine.asked[3]))
    strategy = engine.asked[3].strip().split("\n")[-1]
    assert episode.output == f"## Thinking\n{wrong}\n{strategy}\n{right}\n## Final Response\n{prompt.answer}"
    assert episode.group == 5 and read_response(episode.output) == str(prompt.answer)
    assert rollout.metrics() == {
        "rollout/search_prompts": 1.0, "rollout/search_solved": 1.0, "rollout/search_revisions": 1.0
    }  # fmt: skip


def test_a_solved_prompt_is_not_tried_again(policy):
    """The first prompt is solved at once, the second never: three attempts at it, and one at the first."""
    engine = Scripted([TASK.demonstrate(0), "0", "0", "0"])
    ctx = Context(TASK, engine, policy, Sampling(), seed=0, iteration=0)
    episodes = SearchedTraces(depth=2, restarts=1).collect([(0, TASK[0]), (1, TASK[1])], ctx)
    assert [episode.group for episode in episodes] == [0] and not engine.texts and len(engine.asked) == 4


def test_the_first_revision_of_a_search_is_no_backtracking(policy):
    """Of 40 prompts; a later revision goes back in a fourth of them, 10."""
    prompts = [(slot, TASK[0]) for slot in range(40)]
    ctx = Context(TASK, Scripted(["0"] * 80), policy, Sampling(), seed=0, iteration=0)
    strategies = []
    for revisions in (0, 1):
        attempts = {slot: [ChainAttempt("", "0")] * (1 + revisions) for slot, _ in prompts}
        tried = SearchedTraces()._try(prompts, attempts, 1 + revisions, ctx)
        strategies.append([attempt.strategy for attempt, _ in tried])
    assert strategies[0].count("backtrack") == 0 < strategies[1].count("backtrack") < 20


def test_a_prompt_without_a_right_attempt_has_no_demonstration(policy):
    engine = Scripted([f"{TASK[0].answer + 1}"] * 4)
    ctx = Context(TASK, engine, policy, Sampling(), seed=0, iteration=0)
    assert SearchedTraces(depth=1, restarts=2).collect([(0, TASK[0])], ctx) == [] and not engine.texts


def test_half_of_the_demonstrations_are_revisions(policy):
    """Of 200 a share of .5, standard deviation .035; the answer is the right one in all of them."""
    ctx = Context(TASK, None, policy, Sampling(), seed=0, iteration=0)
    episodes = RevisionDemonstrations().collect([(i, TASK[i]) for i in range(200)], ctx)
    texts = [policy.tokenizer.decode(e.turns[0].completion.observation["input_ids"]) for e in episodes]
    revised = [any(words in text for words in STRATEGIES.values()) for text in texts]
    assert 0.35 < sum(revised) / 200 < 0.65
    assert all(e.output == TASK.demonstrate(i) for i, e in enumerate(episodes))


def test_wrong_arguments_are_refused():
    for part, wrong, word in (
        (SearchedTraces, {"depth": -1}, "depth"),
        (SearchedTraces, {"restarts": 0}, "restarts"),
        (RevisionDemonstrations, {"revised": 2.0}, "revised"),
    ):
        with pytest.raises(ValueError, match=word):
            part(**wrong)
