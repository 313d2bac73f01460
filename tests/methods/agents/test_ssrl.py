"""SSRL's rewards and format by hand, the information mask, and the wiki that is known by heart."""

from dataclasses import replace

import pytest
import torch

from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.agents.ssrl import InformationMask, SelfSearchScores
from mmrl.tools.call_parser import TagParser
from tasks.wiki.memory import MemorisedWiki
from tasks.wiki.search import Search
from tasks.wiki.task import Wiki

SEARCHED = (
    "<think>who?</think> <search>winner</search>\n<information>Obama won.</information> <think>so</think> "
    "<answer>the Obama</answer>"
)
PAPER = SelfSearchScores({"match": 0.9, "format": 0.1})


def reward_of(text, answer="Obama", reward=PAPER):
    ids = torch.zeros(1, dtype=torch.long)
    done = Completion({}, ids, torch.zeros(1), torch.ones(1).bool(), text)
    episode = Episode(Prompt("wiki/train/0", answer=answer), 0, 0, [Turn(done)])
    (episode.scores,) = reward.scores([episode])
    return reward([episode])[0]


def test_rewards_by_hand():
    """(match, format) = (0, 0), (0, 1), (1, 0), (1, 1): .9 match + .1 format = 0, .1, .9, 1."""
    assert reward_of("Obama") == 0
    assert reward_of(SEARCHED, "Bush") == pytest.approx(0.1)
    assert reward_of("<answer>obama!</answer>") == pytest.approx(0.9)
    assert reward_of(SEARCHED) == pytest.approx(1)
    assert reward_of(SEARCHED, ["Bush", "Obama"]) == pytest.approx(1)
    # the last answer counts; more than ten of them are worth a quarter: .9 / 4 = .225
    assert reward_of("<answer>Bush</answer><answer>Obama</answer>") == pytest.approx(0.9)
    assert reward_of("<answer>Obama</answer>" * 10) == pytest.approx(0.9)
    assert reward_of("<answer>Obama</answer>" * 11) == pytest.approx(0.225)


T, S, D, A = (f"<{tag}>x</{tag}>" for tag in ("think", "search", "information", "answer"))


@pytest.mark.parametrize("blocks", [(T, A), (T, S, D, T, A), (T, S, D, T, S, D, T, A)])
def test_formats_that_are_right(blocks):
    assert reward_of("\n ".join(blocks)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "blocks",
    [
        (A,), (S, D, T, A), (T, S, T, A), (T, D, T, A), (T, S, D, A), (T, A, T, A), (T, A, A), (T, S, D, T),
        ("hm", T, A), (T, A, "hm"), (T, T, A), ("<think>", T, A), ("<think><search>x</think>", A), (),
    ],
)  # fmt: skip
def test_formats_that_are_broken(blocks):
    assert reward_of(" ".join(blocks)) == 0


def test_a_long_broken_format_is_read_quickly():
    """A limit far above what a linear reader takes; one that tries all divisions of the text would not end."""
    assert reward_of("<think>" + "x " * 20_000) == 0 and reward_of((T + S + D) * 2000 + "<think>") == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"format_pattern": "("}, r"reward\.format_pattern='\(' is no regular expression"),
        ({"answer_pattern": "["}, r"reward\.answer_pattern='\[' is no regular expression"),
        ({"answer_pattern": "why"}, "has no group"),
    ],
)
def test_patterns_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SelfSearchScores({}, **options)


class Pieces:
    """Tokens whose ids are positions in a list of texts."""

    def __init__(self, texts):
        self.texts = texts

    def token_texts(self, ids):
        return [self.texts[i] for i in ids]


def mask_of(texts, chosen=None, **marks):
    """The mask of a row of these tokens, as 1 and 0."""
    ids = torch.arange(len(texts))
    mask = torch.ones(len(texts), dtype=torch.bool) if chosen is None else torch.tensor(chosen).bool()
    done = Completion({}, ids, torch.zeros(len(texts)), mask, "".join(texts))
    ctx = Context(None, None, Pieces(texts), Sampling(), seed=0, iteration=0)
    (out,) = InformationMask(**marks)([Episode(Prompt("wiki/train/0"), 0, 0, [Turn(done)])], ctx)
    assert out.turns[0].completion == replace(done, action_mask=out.turns[0].completion.action_mask)
    return "".join(str(int(each)) for each in out.turns[0].completion.action_mask)


def test_tokens_of_the_information_are_masked():
    marks = {"open_mark": "[", "close_mark": "]"}
    assert mask_of(list("?a;[a b]?b;[c]d"), **marks) == "111100011111011"  # at 4 to 6, and 12
    assert mask_of(list("a[b"), **marks) == "110"  # never closed
    assert mask_of(list("a]b[]c"), **marks) == "111111"  # nothing inside
    assert mask_of(list("a[b]"), chosen=[0, 1, 1, 1], **marks) == "0101"  # what was masked stays so
    # a token that begins with the mark and goes on inside is masked whole, one without a text is not
    assert mask_of(["a", "[b", "", "c", "]d"], **marks) == "10101"
    tags = ["<", "information", ">", "so", " it", " is", "</", "information", ">", " a"]
    assert mask_of(tags) == "1110001111"


def test_an_empty_mark_is_refused():
    with pytest.raises(ValueError, match="open_mark and close_mark must be texts, got '' and"):
        InformationMask(open_mark="")


def test_the_expert_writes_what_the_engine_would_return():
    """Its text is the calls and results of the engine, put into one completion, and the answer by the facts."""
    task = MemorisedWiki()
    search, parser = Search(task), TagParser("{name}", ";", "[{text}]", "[{name}]")
    for split in ("train", "held_out"):
        here = task.on(split)
        for index in range(0, len(here), 5):
            *calls, answer = here.script(index)
            results = [parser.format_result(search.run(call[1:-1])) for call in calls]
            assert here.demonstrate(index) == "".join(map("".join, zip(calls, results))) + answer
            assert answer == here[index].answer and len(calls) == 2
    wandering = replace(task, expert_hops=1)
    wrong = [index for index in range(len(task)) if not wandering.demonstrate(index).endswith("]" + task[index].answer)]
    assert 0.3 < len(wrong) / len(task) < 0.7  # half of the second relations are those of the question


def test_held_out_questions_are_others_about_the_same_people():
    task = MemorisedWiki()
    questions = [
        {here[index].messages[0]["content"] for index in range(len(here))} for here in (task, task.on("held_out"))
    ]
    assert not questions[0] & questions[1] and len(questions[0] | questions[1]) == 34 * 4  # 70 % of 48; two relations
    people = [{text.split()[0] for text in each} for each in questions]
    assert people[1] <= people[0] == set(Wiki(people=48).knowledge_bases["train"].facts)


def test_the_answer_is_what_follows_the_last_result():
    task = MemorisedWiki()
    prompt, text = task[0], task.demonstrate(0)
    other = next(name for name in task.knowledge_bases["train"].facts if name != prompt.answer)
    assert [task.verify(each, prompt)["exact"] for each in (text, prompt.answer)] == [1, 1]
    wrong = (text[: -len(prompt.answer)] + other, other, text[: -len(prompt.answer)], text + "[" + prompt.answer, "")
    assert [task.verify(each, prompt)["exact"] for each in wrong] == [0] * 5


@pytest.mark.parametrize("options, message", [({"hops": 1}, "hops"), ({"result": "{page}"}, "needs {page} between")])
def test_a_wiki_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MemorisedWiki(**options)
