"""MaskSearch: answer terms by hand, masked passages against the facts, and the stages of a run."""

import re

import pytest

from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.curricula.stages import Stages
from mmrl.methods.agents.mask_search import MaskReward, penalised_recall, token_recall
from tasks.wiki import Search, Wiki
from tasks.wiki.masked import MaskedWiki
from tests.tasks.replies import reply


def test_answer_terms_by_hand():
    """A longer list can only gain recall; three words for two right ones cost a third of it."""
    assert token_recall("Barack Obama", "barack obama") == 1
    assert token_recall("obama biden trump", "barack obama") == 0.5
    assert token_recall("", "barack obama") == token_recall("x", "") == 0
    assert token_recall("obama biden trump barack", "barack obama") == 1
    assert token_recall("ko ko", "ko mi ko") == pytest.approx(2 / 3)
    assert penalised_recall("Barack Obama", "barack obama") == 1
    assert penalised_recall("obama biden trump", "barack obama") == pytest.approx(1 / 3)
    assert penalised_recall("obama", "barack obama") == 0.5 and penalised_recall("", "barack obama") == 0


@pytest.mark.parametrize(
    "output, ended, fillers, recall", [("ko mi", "done", 1, 1), ("mi", "done", 0, 0.5), ("ko mi", "length", 0, 1)]
)
def test_scores_of_an_episode(output, ended, fillers, recall):
    episode = reply(Prompt("wiki/train/0", answer="ko mi"), output)
    episode.ended = ended
    assert MaskReward({"exact": 1.0}).scores([episode]) == [
        {"recall": recall, "penalised_recall": recall, "fillers": fillers}
    ]
    scored = Episode(episode.prompt, 0, 0, scores={"exact": 1.0, "fillers": 1.0})
    assert MaskReward({"exact": 1.0, "fillers": 0.1})([scored]) == [1.1]


def test_passages_are_pages_whose_masked_names_a_search_returns():
    task = MaskedWiki(people=300, masks=[1, 2, 3, 0])
    facts, search, plain = task.knowledge_bases["train"].facts, Search(task), Wiki(people=300)
    for index in range(40):
        prompt, count, script = task[index], task.masks[index % 4], task.script(index)
        if not count:
            assert prompt.messages == plain[index].messages and script == plain.script(index)
            assert prompt.info == {"kind": "question"}
            continue
        pages = prompt.messages[0]["content"].removesuffix("?").split("; ")
        fillers = prompt.answer.split()
        assert len(pages) == len(fillers) == count == len({page.split()[0] for page in pages})
        assert prompt.info == {"kind": f"masks{count}"}
        for page, filler, call in zip(pages, fillers, script):
            name, *pairs = page.split()
            assert page.count("*") == 1
            shown = dict(zip(pairs[::2], pairs[1::2]))
            assert {**shown, **{r: filler for r, n in shown.items() if n == "*"}} == facts[name]
            assert search.run(query=re.fullmatch(r"\?(.+);", call)[1]) == page.replace("*", filler)
        assert script[-1] == prompt.answer and task.score(reply(prompt, script[-1]))["exact"] == 1
        assert task.score(reply(prompt, f"{script[-1]} x"))["exact"] == 0


def test_a_weak_expert_searches_the_first_masks_alone():
    task = MaskedWiki(people=300, masks=[3], expert_hops=1)
    scripts = [task.script(index) for index in range(30)]
    assert all(len(script) == 2 for script in scripts)
    first = [script[-1].split()[0] == task[n].answer.split()[0] for n, script in enumerate(scripts)]
    rest = [script[-1].split()[1] == task[n].answer.split()[1] for n, script in enumerate(scripts)]
    assert all(first) and sum(rest) < 5


def test_held_out_problems_are_questions_about_other_people():
    task = MaskedWiki(people=300)
    assert [task.on("held_out")[n].answer for n in range(9)] == [
        Wiki(people=300).on("held_out")[n].answer for n in range(9)
    ]
    assert {task.on("held_out")[n].info["kind"] for n in range(9)} == {"question"}


def test_stages_go_from_one_mask_to_questions():
    task = MaskedWiki(people=300, masks=[1, 2, 0])
    curriculum = Stages([["masks1"], ["masks2"], ["question"]], [2, 1, 9])
    kinds = [
        {task[i].info["kind"] for i in curriculum.select(8, Context(task, None, None, Sampling(), 0, iteration))}
        for iteration in range(4)
    ]
    assert kinds == [{"masks1"}, {"masks1"}, {"masks2"}, {"question"}]


@pytest.mark.parametrize("masks", [[], [-1], [1000]])
def test_masks_that_cannot_be_are_refused(masks):
    with pytest.raises(ValueError, match="masks must be numbers from 0 to 90, the people of a knowledge base"):
        MaskedWiki(people=300, masks=masks)
