"""Goal guidance: Q of beginnings as the untouched model has it, and answers that are discarded and steered, by hand."""

from dataclasses import replace

import pytest
import torch

from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Episode, Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.preferences.goal_conditioned.guidance import Beginning, GoalBeam, GoalFilter, KeptVote
from mmrl.methods.preferences.goal_conditioned.reward_model import GoalScoringPolicy
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.joined import join, with_versions
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic.mistakes import RunningSumPairs, inject_mistake
from tasks.arithmetic.task import Arithmetic
from tests.policies.text.oracle import TINY

TASK = Arithmetic()


class TableScorer(GoalScoringPolicy):
    """Scorer whose Q of a text is that of a table, or else 0; `asked` are the texts and whether they had ended."""

    def __init__(self, table):
        super().__init__(config=dict(TINY))
        self.table, self.asked = table, []

    def score_beginnings(self, rows, ended):
        texts = [row["answer"] for row in rows]
        self.asked.append(list(zip(texts, ended)))
        return [self.table(text) if callable(self.table) else self.table.get(text, 0.0) for text in texts]


class AnyGoal(GoalScoringPolicy):
    """Stands in for a trained reward model, where a tiny run has found no goal."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.goal.fill_(1.0)


def context(engine, policy, scorer, max_tokens=6, group_size=2, **sampling):
    return Context(
        TASK, engine, policy, Sampling(max_tokens=max_tokens, **sampling), seed=0, iteration=0, group_size=group_size,
        models={"reward_model": scorer},
    )  # fmt: skip


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return TextPolicy(config=dict(TINY))


def test_q_of_beginnings_is_that_of_the_untouched_model():
    """Of a beginning the last state is that of its last character, of an ended answer that of the end."""
    torch.manual_seed(0)
    scorer = GoalScoringPolicy(config=dict(TINY))
    scorer.goal.copy_(torch.randn(scorer.goal.shape))
    rows = [{"messages": [{"role": "user", "content": "1+2="}], "answer": text} for text in ("3", "12", "12")]
    expected = []
    for row, ended in zip(rows, (True, True, False)):
        ids = scorer.tokenizer("1+2=" + row["answer"])["input_ids"] + [scorer.tokenizer.eos_token_id] * ended
        with torch.no_grad():
            states = scorer.model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1]
        expected.append(torch.cosine_similarity(states[0, -1], scorer.goal, dim=0).item())
    assert scorer.score_beginnings(rows, [True, True, False]) == pytest.approx(expected, abs=1e-5)
    assert abs(expected[1] - expected[2]) > 1e-3 and scorer.score_beginnings([], []) == []


def test_answers_that_are_kept_are_those_of_single_turns(policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = context(engine, policy, TableScorer({}))
    prompts = [(slot, TASK[slot]) for slot in range(4)]
    plain = SingleTurn().collect(prompts, ctx)
    kept = GoalFilter(threshold=-1.0, segment_tokens=2).collect(prompts, ctx)
    for one, other in zip(plain, kept, strict=True):
        assert (one.group, one.sample_index, one.ended, one.output) == (
            other.group, other.sample_index, other.ended, other.output
        )  # fmt: skip
        assert torch.equal(one.turns[0].completion.action, other.turns[0].completion.action)
        torch.testing.assert_close(
            one.turns[0].completion.behavior_logprobs, other.turns[0].completion.behavior_logprobs
        )
        assert other.info["counts"] == {"discarded": 0, "unsampled": 0}


class Letters:
    """Engine that writes one letter for each request, in the order of a text; z ends an answer."""

    def __init__(self, text):
        self.rest, self.prefixes = list(text), []

    def sample(self, requests, sampling):
        done = []
        for request in requests:
            self.prefixes.append("" if request.prefix is None else Spelling.decode(request.prefix.tolist()))
            letter = self.rest.pop(0)
            ended, one = "done" if letter == "z" else "length", torch.ones(1)
            action = torch.tensor([ord(letter)])
            done.append(Completion({}, action, -one, one == 1, output=letter, ended=ended))
        return done


class Spelling:
    """Policy that spells ids as characters."""

    @staticmethod
    def decode(ids):
        return "".join(map(chr, ids))


class Counts(Letters):
    """Notes how many tokens are asked for."""

    def sample(self, requests, sampling):
        self.asked = sampling.max_tokens
        return super().sample(requests, sampling)


@pytest.mark.parametrize(("start", "asked"), [("", 4), ("ab", 4), ("abc", 3), ("abcde", 1)])
def test_a_segment_ends_with_the_answer(start, asked):
    """Segments of 4 tokens in an answer of 6."""
    part = Letters(start)
    letters = [with_versions(part.sample([Request({}, 0)], None)[0]) for _ in start]
    engine, ctx = Counts("z"), context(None, Spelling, None)
    begun = Beginning(0, TASK[0], 0)
    for letter in letters:
        begun = replace(begun, part=letter if begun.part is None else join(begun.part, letter))
    (answer,) = GoalFilter(segment_tokens=4).extend([begun], [0], replace(ctx, engine=engine))
    assert engine.asked == asked and answer.tokens == len(start) + 1 and not answer.runs(6)


def test_an_answer_at_the_threshold_goes_on():
    scorer, part = TableScorer({"a": 0.5, "b": 0.25}), GoalFilter(threshold=0.5)
    answers = [
        Beginning(0, TASK[0], n, done) for n, done in enumerate(Letters("ab").sample([Request({}, 0)] * 2, None))
    ]
    assert [a.discarded for a in part.look(answers, context(None, Spelling, scorer))] == [False, True]


def test_beams_are_those_of_their_prompt_and_as_many_as_the_largest_group():
    prompts, ctx = [(slot, TASK[slot]) for slot in range(2)], context(Letters("ab"), Spelling, TableScorer({}), 1, 1)
    answers = GoalBeam(beams=1, continuations=1, segment_tokens=1).collect(prompts, ctx)
    assert [(e.group, e.output) for e in answers] == [(0, "a"), (1, "b")]
    with pytest.raises(ConfigError, match="fewer answers than the 3 of a prompt"):
        GoalBeam(beams=2).collect(prompts, replace(ctx, requested_indices={0: range(3), 1: range(1)}))


def test_what_has_not_begun_is_not_measured():
    scorer, done = TableScorer({"a": 0.5}), Letters("a").sample([Request({}, 0)], None)[0]
    answers = [Beginning(0, TASK[0], 0), Beginning(0, TASK[0], 1, part=done)]
    GoalFilter().measure(answers, context(None, Spelling, scorer))
    assert [answer.quality for answer in answers] == [0, 0.5] and scorer.asked == [[("a", False)]]


def test_an_answer_ends_as_soon_as_its_q_is_low():
    """Two answers, letters a and b, then c and z: b has Q -.2 but is looked at from two letters on; bz has ended."""
    scorer = TableScorer({"a": 0.5, "b": -0.2, "ac": -0.1, "bz": -0.9})
    rollout = GoalFilter(threshold=0.0, segment_tokens=1, first_look=2)
    first, second = rollout.collect([(7, TASK[0])], context(Letters("abcz"), Spelling(), scorer))
    assert (first.output, first.ended, first.info["kept"]) == ("ac", "length", 0.0)
    assert first.info["counts"] == {"discarded": 1, "unsampled": 4}
    assert (second.output, second.ended, second.info["kept"]) == ("bz", "done", 1.0)
    assert scorer.asked == [[("a", False), ("b", False)], [("ac", False), ("bz", True)]]
    # from the first letter on
    eager = GoalFilter(threshold=0.0, segment_tokens=1).collect(
        [(7, TASK[0])], context(Letters("abcz"), Spelling(), scorer, max_tokens=2)
    )
    assert [episode.output for episode in eager] == ["ac", "b"]
    assert [episode.info["counts"]["unsampled"] for episode in eager] == [0, 1]


def test_a_beam_by_hand():
    """Two beams of two continuations: of a, b, c, a the best are b and c; of bz, bd, ca, cb they are cb and bz.

    bz has ended and stays, cb goes on with e and f; cbf is the best of all.
    """
    table = {"a": 0.1, "b": 0.9, "c": 0.5, "bz": 0.6, "bd": 0.2, "ca": 0.0, "cb": 0.7, "cbe": 0.1, "cbf": 0.8}
    engine = Letters("abca" + "zdab" + "ef")
    rollout = GoalBeam(beams=2, continuations=2, segment_tokens=1)
    ctx = context(engine, Spelling(), TableScorer(table), max_tokens=3)
    first, second = rollout.collect([(3, TASK[0])], ctx)
    assert engine.prefixes == ["", "", "", "", "b", "b", "c", "c", "cb", "cb"]
    assert (first.output, first.info["quality"], first.sample_index, first.group) == ("cbf", 0.8, 0, 3)
    assert (second.output, second.info["quality"], second.ended) == ("bz", 0.6, "done")
    assert first.turns[0].completion.behavior_logprobs.tolist() == [-1.0] * 3


def test_a_beam_finds_what_single_samples_do_not(policy):
    """Q is the share of digits: the best of a beam has more than the mean of plain samples."""
    engine = LocalEngine()
    engine.sync(policy, 0)

    def share(text):
        return sum(letter.isdigit() for letter in text) / max(len(text), 1)

    prompts = [(slot, TASK[slot]) for slot in range(3)]
    ctx = context(engine, policy, TableScorer(share), group_size=1)
    steered = GoalBeam(beams=4, continuations=4, segment_tokens=1).collect(prompts, ctx)
    plain = SingleTurn().collect(prompts, replace(ctx, group_size=8))
    assert sum(share(e.output) for e in steered) / 3 > 2 * sum(share(e.output) for e in plain) / 24


def test_a_vote_among_kept_answers():
    """7, 8 and 8 of which 8 are discarded: 7 wins; of all 8 does. Where all are discarded, all vote."""
    prompt = TASK[0]

    def answers(group, *entries):
        return [
            Episode(prompt, group, i, info={"kept": kept, "extracted": text}, scores={"exact": exact})
            for i, (text, exact, kept) in enumerate(entries)
        ]

    groups = answers(0, ("7", 1.0, 1.0), ("8", 0.0, 0.0), ("8", 0.0, 0.0))
    groups += answers(1, ("7", 1.0, 0.0), ("8", 0.0, 0.0), ("8", 0.0, 0.0))
    metrics = KeptVote()(groups)
    assert metrics["mean"] == 0.5 and metrics["majority"] == 0.0 and metrics["accepted"] == pytest.approx(1 / 6)


def test_a_mistake_stays_in_the_lines_after_it():
    """3+8+1+5: 11, 12, 17; two too many from the second line on, and 3*2*4 with one too few in the first one."""
    assert inject_mistake([3, 8, 1, 5], "+", 1, 2) == [11, 14, 19]
    assert inject_mistake([3, 2, 4], "*", 0, -1) == [5, 20]
    task = RunningSumPairs()
    for index in range(30):
        prompt, info = task[index], task[index].info
        right, wrong = ([int(line) for line in info[name].split("\n")] for name in ("chosen", "rejected"))
        assert info["chosen"] == task.demonstrate(index) and right[-1] == prompt.answer
        differ = [one != other for one, other in zip(right, wrong, strict=True)]
        assert differ == [line >= info["line"] for line in range(3)]


def test_wrong_arguments_are_refused(policy):
    for part, wrong, word in (
        (GoalFilter, {"threshold": 2.0}, "threshold"),
        (GoalFilter, {"segment_tokens": 0}, "segment_tokens"),
        (GoalFilter, {"first_look": -1}, "first_look"),
        (GoalBeam, {"beams": 0}, "beams"),
    ):
        with pytest.raises((ConfigError, ValueError), match=word):
            part(**wrong)
    scorer, prompts = TableScorer({}), [(0, TASK[0])]
    with pytest.raises(ConfigError, match="segments"):
        GoalFilter().collect(prompts, context(None, policy, scorer, stop=("\n",)))
    with pytest.raises(ConfigError, match="beams=1"):
        GoalBeam(beams=1).collect(prompts, context(None, policy, scorer))
    with pytest.raises(ConfigError, match="knows a goal"):
        GoalFilter().collect(prompts, context(Letters("ab"), Spelling(), policy))
