"""SSP: rules and check of questions, rewards and advantages by hand, reuse, and what a round collects."""

import re
from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling
from mmrl.methods.problems.ssp.credit import ProposerAdvantage, ProposerReward, proposer_reward
from mmrl.methods.problems.ssp.questions import extract_question, mix_documents
from mmrl.methods.problems.ssp.rollout import SearchSelfPlay
from mmrl.rewards.answers.leak import leaks
from mmrl.rollouts.text.tools import ToolUse
from mmrl.tools.call_parser import TagParser
from tasks.wiki import Search, Wiki
from tasks.wiki.proposals import ProposingWiki
from tasks.wiki.self_play import KINDS, SelfPlayWiki
from tests.rollouts.text.test_tools import POLICY

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
TASK = Wiki(people=60, hops=1)
EXACT = {"exact": 1.0}


@pytest.mark.parametrize("accuracy, difficulty, intermediate", [(1.0, 0.0, 0.0), (0.6, 0.4, 0.96), (0.0, 1.0, 0.0)])
def test_rewards_of_a_question_by_hand(accuracy, difficulty, intermediate):
    assert proposer_reward(accuracy) == pytest.approx(difficulty)
    assert proposer_reward(accuracy, "intermediate") == pytest.approx(intermediate)  # 4 * .6 * .4


def group_of(outcome, *scores):
    proposal = Episode(Prompt("p/0"), 0, 0, scores={"exact": 0.0}, role="proposer", info={"proposal": outcome})
    return [proposal, *(Episode(Prompt("p/0"), 0, n, scores={"exact": s}, role="solver") for n, s in enumerate(scores))]


def test_a_proposer_earns_what_its_solvers_miss_and_nothing_without_a_valid_question():
    assert ProposerReward(EXACT)(group_of("valid", 1, 1, 1, 0, 0)) == pytest.approx([0.4, 1, 1, 1, 0, 0])
    assert ProposerReward(EXACT, "intermediate")(group_of("valid", 1, 1, 1, 0, 0))[0] == pytest.approx(0.96)
    for outcome in ("malformed", "leaked", "unsearched", "unsupported"):
        assert ProposerReward(EXACT)(group_of(outcome, 0, 0))[0] == 0  # the solvers of a reused question do not count
        assert ProposerReward(EXACT)(group_of(outcome)) == [0]
    with pytest.raises(ValueError, match=r"reward\.kind must be difficulty or intermediate"):
        ProposerReward(EXACT, "hard")


def test_advantages_by_hand():
    """A proposer's is its reward, .5. Solvers 1, 0, 0, 1: mean 1/2, population std 1/2, so +1 and -1."""
    batch = Batch(
        action_mask=torch.tensor([[True, False]] * 6),
        episode_reward=torch.tensor([0.5, 1, 0, 0, 1, 0.25]),
        group=torch.tensor([3, 3, 3, 3, 3, 4]),
        episode=torch.arange(6),
        proposes=torch.tensor([1, 0, 0, 0, 0, 1]).bool(),
    )
    out = ProposerAdvantage(epsilon=0)(batch, CTX)["advantages"]
    assert_close(out[:, 0], torch.tensor([0.5, 1, -1, -1, 1, 0.25]))
    assert not out[:, 1].any()


def test_rules_of_questions():
    pattern = re.compile(r"(?s)<question>(.*?)</question>")
    assert extract_question("a <question> Who\nis it? </question> b", pattern) == "Who\nis it?"
    assert extract_question("<question> </question>", pattern) is None and extract_question("Who?", pattern) is None
    assert leaks("Who married Anna?", "anna") and not leaks("Who married Annabel?", "anna")
    assert leaks("What costs $5 (net)?", "$5 (net)")


def test_documents_of_others_are_mixed_in():
    documents = [["a", "b"], ["c", "b"], ["d", "e", "c"]]
    mixed = mix_documents(documents, 0, 2, "key")
    assert len(mixed) == 4 and {"a", "b"} < set(mixed) and set(mixed) < set("abcde")
    assert mixed == mix_documents(documents, 0, 2, "key")
    assert sorted(mix_documents(documents, 0, 9, "key")) == list("abcde")
    assert sorted(mix_documents(documents, 0, 0, "key")) == ["a", "b"]
    assert len({tuple(mix_documents(documents, 0, 9, "key", n)) for n in range(20)}) > 5


@dataclass
class Says:
    """An engine that answers by a function of the prompt, of how often it was read, and of what was written so far."""

    answer: object

    def __post_init__(self):
        self.read = []

    def sample(self, requests, sampling):
        return [self._one(request) for request in requests]

    def _one(self, request):
        text = request.observation["messages"][0]["content"]
        before = "" if request.prefix is None else POLICY.decode(request.prefix.tolist())
        number = sum(one == (text, before) for one in self.read)
        self.read.append((text, before))
        line = self.answer(text, before, number)
        ids = POLICY.tokenize(line)
        return Completion(
            POLICY.encode(request.observation), ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), line,
            extra={"temperature": torch.tensor(1.0)},
        )  # fmt: skip


def rollout_of(**options):
    parser = TagParser("{name}", ";", "[{text}]", "[{name}]")
    defaults = {
        "proposer_prompt": "{answer}!",
        "check_prompt": "{documents}: {question}",
        "question_pattern": r"^([a-z]+(?: [a-z]+)+\?)$",
        "min_searches": 1,
    }
    return SearchSelfPlay(ToolUse({"?": Search(TASK, top=3)}, parser, max_turns=2), **{**defaults, **options})


def collect(rollout, answer, slots=(0, 1), iteration=0):
    engine = Says(answer)
    ctx = Context(TASK, engine, POLICY, Sampling(), seed=0, iteration=iteration, group_size=3)
    episodes = rollout.collect([(slot, TASK[slot]) for slot in slots], ctx)
    for episode in episodes:
        episode.scores = TASK.score(episode)
    return episodes, engine


QUESTION = {TASK[n].answer: TASK[n].messages[0]["content"] for n in (0, 1)}
ANSWER = {question: answer for answer, question in QUESTION.items()}


def plays(text, before, number, from_documents=None):
    """A proposer that asks the task's own questions, a check that answers them, and one right solver of two."""
    if text.endswith("!"):
        return QUESTION[text[:-1]] if before else f"?{text[:-1]};"
    question = text.rpartition(": ")[2]
    if ": " in text:
        return ANSWER[question] if from_documents is None else from_documents
    if not before:
        return f"?{question.split()[0]};"
    return ANSWER[question] if number == 0 else "nobody"


def test_a_round_has_a_proposal_and_its_solvers():
    episodes, _ = collect(rollout_of(), plays)
    assert [(e.role, e.group, e.sample_index) for e in episodes] == [
        (role, slot, n) for slot in (0, 1) for n, role in enumerate(["proposer", "solver", "solver"])
    ]
    assert [e.scores["exact"] for e in episodes if e.role == "solver"] == [1, 0, 1, 0]
    assert ProposerReward(EXACT)(episodes[:3]) == [0.5, 1, 0] and episodes[0].info["counts"]["self_play/valid"] == 1
    assert [bool(e.turns[0].completion.extra["proposes"]) for e in episodes] == [True, False, False] * 2
    # rows of one prompt_id have one context
    ids = {(e.turns[0].completion.prompt_id, e.prompt.messages[0]["content"]) for e in episodes}
    assert len(ids) == len({number for number, _ in ids}) == 4


def test_the_check_reads_the_documents_of_both_proposals_and_the_question():
    episodes, engine = collect(rollout_of(noise_documents=4), plays)
    checks = [text for text, _ in engine.read if ": " in text]
    search = Search(TASK, top=3)
    for check, proposal in zip(checks, (episodes[0], episodes[3]), strict=True):
        documents, _, question = check.rpartition(": ")
        assert question == proposal.info["question"]
        assert sorted(documents.split("\n\n")) == sorted(search.run(query=answer) for answer in QUESTION)


def test_a_question_that_does_not_follow_from_the_documents_is_not_played_with_the_check_alone():
    def wrong(text, before, number):
        return plays(text, before, number, from_documents="nobody")

    checked, _ = collect(rollout_of(), wrong)
    assert [e.role for e in checked] == ["proposer", "proposer"]
    assert [e.info["proposal"] for e in checked] == ["unsupported"] * 2 and ProposerReward(EXACT)(checked[:1]) == [0]
    unchecked, engine = collect(rollout_of(check=False), wrong)
    assert [e.role for e in unchecked] == ["proposer", "solver", "solver"] * 2
    assert not any(": " in text for text, _ in engine.read)


def test_a_proposal_whose_tool_fails_is_an_error_and_no_score():
    class Broken(Search):
        def run(self, query: str) -> str:
            """
            Fail.

            Args:
                query: is not read.
            """
            raise OSError("down")

    rollout = rollout_of()
    rollout.rollout.tools["?"] = Broken(TASK)
    episodes, _ = collect(rollout, plays)
    assert [(e.role, e.ended, e.info["proposal"]) for e in episodes] == [("proposer", "error", "failed")] * 2
    assert episodes[0].info["counts"] == {"tools/?/raised": 1, "self_play/failed": 1}


@pytest.mark.parametrize(
    "outcome, last",
    [("malformed", lambda answer: "what"), ("leaked", lambda answer: f"{answer} kin?")],
)
def test_proposals_against_the_rules(outcome, last):
    def answer(text, before, number):
        return last(text[:-1]) if text.endswith("!") and before else plays(text, before, number)

    episodes, engine = collect(rollout_of(), answer)
    assert [e.info["proposal"] for e in episodes] == [outcome] * 2
    assert episodes[0].info["counts"][f"self_play/{outcome}"] == 1 and not any(": " in text for text, _ in engine.read)


def test_a_question_without_enough_searches_is_invalid():
    def at_once(text, before, number):
        return QUESTION[text[:-1]] if text.endswith("!") else plays(text, before, number)

    assert {e.info["proposal"] for e in collect(rollout_of(), at_once)[0]} == {"unsearched"}
    assert {e.info["proposal"] for e in collect(rollout_of(min_searches=2), plays)[0]} == {"unsearched"}
    assert collect(rollout_of(min_searches=0), at_once)[0][0].info["proposal"] == "valid"


def test_an_earlier_question_takes_the_place_of_an_invalid_one_until_the_pool_is_emptied():
    def silent(text, before, number):
        return "what" if text.endswith("!") else plays(text, before, number)

    rollout = rollout_of(reuse_iterations=2)
    episodes, _ = collect(rollout, plays)
    rollout.observe([[e.light() for e in episodes[:3]], [e.light() for e in episodes[3:]]])
    assert dict(rollout.pool) == ANSWER and rollout.metrics() == {"self_play/pool": 2.0}
    again = rollout_of(reuse_iterations=2)
    again.load_state_dict(rollout.state_dict())
    reused, _ = collect(again, silent, iteration=1)
    assert [e.role for e in reused] == ["proposer", "solver", "solver"] * 2
    assert all(ANSWER[e.prompt.messages[0]["content"]] == e.prompt.answer for e in reused if e.role == "solver")
    assert reused[0].info["counts"]["self_play/reused"] == 1 and ProposerReward(EXACT)(reused[:3])[0] == 0
    again.observe([[e.light() for e in reused[:3]]])
    assert again.pool == [] and len(collect(again, silent, iteration=2)[0]) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"proposer_prompt": "Ask."}, r"rollout\.proposer_prompt='Ask\.' lacks \{answer\}"),
        ({"check_prompt": "{question}"}, r"rollout\.check_prompt=.* lacks \{documents\}"),
        ({"question_pattern": "("}, "is no regular expression"),
        ({"question_pattern": "why"}, "has no group"),
        ({"noise_documents": -1}, "noise_documents"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rollout_of(**options)


def test_a_task_without_texts_as_answers_is_refused():
    class Numbers(Wiki):
        def __getitem__(self, index):
            return replace(super().__getitem__(index), answer=7)

    with pytest.raises(ValueError, match="wiki/train/0: the answer is 7, and proposers write questions for a text"):
        rollout_of().check_task(Numbers(people=60))


def test_the_start_demonstrates_every_kind():
    """Each script's question has the problem's answer by the facts, and a check's documents have that fact."""
    task = SelfPlayWiki(people=60)
    facts, search = task.knowledge_bases["train"].facts, Search(task, top=2)
    for index in range(40):
        prompt, script, kind = task[index], task.script(index), KINDS[index % 3]
        text = prompt.messages[0]["content"]
        if kind == "propose":
            assert text == f"{prompt.answer}!" and search.run(query=script[0][1:-1])
        question = {"propose": script[-1], "check": text.rpartition(": ")[2]}.get(kind, text)
        name, *relations = question.rstrip("?").split()
        for relation in relations:
            name = facts[name][relation]
        assert name == prompt.answer
        if kind != "propose":
            assert script[-1] == prompt.answer
        if kind == "check":
            person, relation = question.rstrip("?").split()
            assert any(
                page.startswith(f"{person} ") and f"{relation} {prompt.answer}" in page
                for page in re.split("; |\n\n|: ", text)
            )
            # without the question every result's own name may be the answer
            results = text.rpartition(": ")[0].split("\n\n")
            assert len(results) == 2 and all(one.split().count(one.split()[0]) > 1 for one in results)
    assert task.on("held_out")[2] == Wiki(people=60).on("held_out")[2]


def test_the_facts_judge_held_out_proposals():
    """A question is right exactly if following its relations through the facts ends at the prompt's name."""
    task = ProposingWiki(people=60, hops=1).on("held_out")
    proposing = replace(task, propose=True)
    facts = task.knowledge_bases["held_out"].facts
    prompt = proposing[3]
    assert prompt.messages[0]["content"] == f"{prompt.answer}!" and proposing.script(3)[0] == f"?{prompt.answer};"
    rights = {
        f"{name} {relation}?" for name in facts for relation in facts[name] if facts[name][relation] == prompt.answer
    }
    asked = [f"{name} {relation}?" for name in facts for relation in facts[name]]
    assert {question for question in asked if proposing.verify(question, prompt)["exact"]} == rights
    assert proposing.demonstrate(3) in rights
    for text in ("", "?", "zzz kin?", next(iter(rights))[:-1], f"{next(iter(facts))} aunt?", f"{next(iter(facts))}?"):
        assert proposing.verify(text, prompt)["exact"] == 0
    assert task[3] == Wiki(people=60, hops=1).on("held_out")[3] and task.verify(prompt.answer, task[3])["exact"] == 1
