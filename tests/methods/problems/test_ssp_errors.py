"""SSP: what completions that the engine could not write change, searches that are repeated, and groups of a batch."""

import re
from dataclasses import replace

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.methods.problems.ssp.credit import ProposerAdvantage
from mmrl.methods.problems.ssp.questions import answer_from_documents, extract_question, successful_calls
from tests.methods.problems.test_ssp import CTX, POLICY, TASK, Says, collect, plays, rollout_of


class Fails(Says):
    """An engine whose answers that `fails` names, by the prompt and the number of its reading, have ended in an error.

    Attributes:
        fails: function of the text, of what was written before, and of how often both were read.
    """

    fails = staticmethod(lambda text, before, number: False)

    def _one(self, request):
        done = super()._one(request)
        text, before = self.read[-1]
        number = sum(one == (text, before) for one in self.read) - 1
        return replace(done, ended="error") if self.fails(text, before, number) else done


def collect_with(fails):
    """Episodes of one proposal and its two solvers."""
    engine = Fails(plays)
    engine.fails = fails
    ctx = Context(TASK, engine, POLICY, Sampling(), seed=0, iteration=0, group_size=3)
    return rollout_of().collect([(0, TASK[0])], ctx)


def is_of_a_solver(text):
    return not text.endswith("!") and ": " not in text


def test_a_proposal_has_no_reward_only_if_all_its_solvers_fail():
    both = collect_with(lambda text, before, number: is_of_a_solver(text))
    assert [(e.role, e.ended) for e in both] == [("proposer", "error"), ("solver", "error"), ("solver", "error")]
    one = collect_with(lambda text, before, number: is_of_a_solver(text) and bool(before) and number == 1)
    assert [e.ended for e in one] == ["done", "done", "error"]


def test_an_invalid_proposal_without_solvers_is_trained_on():
    def wrong(text, before, number):
        return plays(text, before, number, from_documents="nobody")

    assert [(e.role, e.ended) for e in collect(rollout_of(), wrong)[0]] == [("proposer", "done")] * 2


def test_a_question_whose_check_fails_is_neither_played_nor_reused():
    (proposal,) = collect_with(lambda text, before, number: ": " in text)
    assert (proposal.ended, proposal.info["proposal"]) == ("error", "valid")
    rollout = rollout_of()
    rollout.observe([[proposal.light()]])
    assert rollout.pool == []


def test_a_check_that_fails_leaves_the_others_their_own_score():
    """The first has no score, the second is right: a score of the first, which is 0, would be taken for its."""

    def answer(text, before, number):
        return "nobody" if text == "fails" else TASK[1].answer

    engine = Fails(answer)
    engine.fails = lambda text, before, number: text == "fails"
    messages = [({"role": "user", "content": text},) for text in ("fails", "asks")]
    trials = [Episode(replace(TASK[n], messages=messages[n]), n, 0) for n in (0, 1)]
    ctx = Context(TASK, engine, POLICY, Sampling(), seed=0, iteration=0)
    assert answer_from_documents(trials, ctx, "exact") == [None, True]


def test_no_search_is_repeated_where_there_is_no_question_to_check(monkeypatch):
    rollout, tool = rollout_of(), type(rollout_of().rollout.tools["?"])
    search, queries = tool.run, []
    monkeypatch.setattr(tool, "run", lambda self, query: queries.append(query) or search(self, query))

    def silent(text, before, number):
        return "what" if text.endswith("!") and before else plays(text, before, number)

    episodes, _ = collect(rollout, silent)
    assert [e.info["proposal"] for e in episodes] == ["malformed"] * 2
    assert sorted(queries) == sorted(TASK[n].answer for n in (0, 1))  # each proposal searched once


def test_calls_that_returned_something_are_counted_once():
    calls = [("a", "x", "ok"), ("a", "y", "raised"), ("a", "z", "truncated"), ("a", "x", "ok"), ("b", "x", "ok")]
    proposal = Episode(Prompt("p/0"), 0, 0, info={"calls": calls})
    assert successful_calls(proposal) == [("a", "x"), ("a", "z"), ("b", "x")]


def test_a_group_of_the_pattern_that_takes_no_part_is_no_question():
    assert extract_question("so:", re.compile(r"so:( .*)?")) is None
    assert extract_question("so: who?", re.compile(r"so:( .*)?")) == "who?"


def test_the_group_of_number_0_is_one_like_the_others():
    """Solvers 1 and 0 of both groups: mean 1/2 and std 1/2, so +1 and -1; each proposer's is its reward."""
    batch = Batch(
        action_mask=torch.ones(6, 1).bool(),
        episode_reward=torch.tensor([0.5, 1, 0, 0.25, 0, 1]),
        group=torch.tensor([0, 0, 0, 1, 1, 1]),
        episode=torch.arange(6),
        proposes=torch.tensor([1, 0, 0, 1, 0, 0]).bool(),
    )
    out = ProposerAdvantage(epsilon=0)(batch, CTX)["advantages"]
    assert_close(out[:, 0], torch.tensor([0.5, 1, -1, 0.25, -1, 1]))
