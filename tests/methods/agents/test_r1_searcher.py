"""R1-Searcher's scores and rewards of both stages, by hand."""

import pytest
import torch

from mmrl.config.compose import compose
from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.methods.agents.r1_searcher import SearchScores
from mmrl.schedules import Piecewise
from tasks.wiki.hesitant import HesitantWiki
from tasks.wiki.task import Wiki

ANSWER = "He won. </think> <answer>the Barack Obama Jr</answer>"
GOOD = ("search", {"query": "winner"}, "ok")
BAD = ("search", {"query": ""}, "BadArguments")
STAGES = ({"retrieval": 0.5, "format": 0.5}, {"f1": 1.0, "broken": -2.0})


def scores_of(output, calls=(GOOD,), ended="done", answer="Barack Obama", **options):
    ids = torch.zeros(1, dtype=torch.long)
    done = Completion({}, ids, torch.zeros(1), torch.ones(1).bool(), output, ended)
    episode = Episode(
        Prompt("wiki/train/0", answer=answer), 0, 0, [Turn(done)], ended=ended, info={"calls": list(calls)}
    )
    (episode.scores,) = SearchScores({}, **options).scores([episode])
    return episode


def rewards_of(*arguments, **options):
    """Rewards of an episode in both stages."""
    episode = scores_of(*arguments, **options)
    return [SearchScores(weights)([episode])[0] for weights in STAGES]


def test_rewards_by_hand():
    """F1("the Barack Obama Jr", "Barack Obama"): without the article P = 2/3, R = 1: .8. Format broken: .8 - 2."""
    assert rewards_of(ANSWER) == pytest.approx([1.0, 0.8])
    assert rewards_of(ANSWER, ()) == pytest.approx([0.5, 0.8])  # no search
    assert rewards_of(ANSWER, (GOOD, BAD)) == pytest.approx([0.5, -1.2])  # a search, and a call that is none
    assert rewards_of(ANSWER, (BAD,)) == pytest.approx([0.0, -1.2])
    assert rewards_of("I give up") == pytest.approx([0.5, -2.0])
    assert rewards_of("</think> <answer>Bush</answer>") == pytest.approx([1.0, 0.0])
    llama = SearchScores({"f1": 1.0, "broken": -1.0})
    assert llama([scores_of(ANSWER, (BAD,))]) == pytest.approx([-0.2])


@pytest.mark.parametrize(
    "output",
    [
        "<answer>Obama</answer>",  # no end of the thoughts
        "</think> </think> <answer>Obama</answer>",
        "</think> <answer>Obama</answer> <answer>Obama</answer>",
        "<answer>Bush</answer> </think> <answer>Obama</answer>",
        "</think> <answer>Obama</answer> or so",
        "</think> <answer>Obama <search>who</search></answer>",
        "</think> <answer>one two three four five six seven eight nine ten eleven</answer>",
    ],
)
def test_formats_that_are_broken(output):
    assert scores_of(output).scores["format"] == 0 and scores_of(output).scores["broken"] == 1


def test_ten_words_are_a_short_answer_and_a_cut_one_is_none():
    ten = "</think><answer>a b c d e f g h i j</answer>\n"
    assert scores_of(ten).scores["format"] == 1 and scores_of(ten, ended="length").scores["format"] == 0
    marks = {"answer_pattern": "([a-z? ]+)", "forbidden": ["?"]}
    assert [scores_of(text, **marks).scores["format"] for text in ("gi", "gi?", "GI", "")] == [1, 0, 0, 0]
    assert scores_of("gi", answer="gi", **marks).scores["f1"] == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"answer_pattern": "("}, r"reward\.answer_pattern='\(' is no regular expression"),
        ({"answer_pattern": "why"}, "has no group"),
        ({"max_words": 0}, "max_words"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SearchScores({}, **options)


def test_the_recipe_changes_all_weights_at_once():
    """Its weights are those of stage 1 up to an iteration, and those of stage 2 from it on."""
    reward = compose(["recipe=r1_searcher", "run_dir=same"]).data.reward
    curves = {name: node for name, node in reward.weights.items() if name != "exact"}
    change = max(curves["f1"]["values"])
    weights = [
        {name: Piecewise(dict(node["values"]), node["steps"])(i) for name, node in curves.items()}
        for i in (0, change - 1, change, 10 * change)
    ]
    first, second = ({name: stage.get(name, 0.0) for name in curves} for stage in STAGES)
    assert weights == [first, first, second, second] and reward.weights.exact == 0 < change


def test_the_hesitant_expert_seldom_searches():
    """1000 problems, p = .9: standard error sqrt(.09 / 1000) = .0095, limits at four of them."""
    plain, hesitant = Wiki(people=600), HesitantWiki(people=600)
    scripts = [hesitant.script(index) for index in range(1000)]
    searches = [index for index, script in enumerate(scripts) if len(script) > 1]
    assert len(searches) / 1000 == pytest.approx(0.1, abs=0.038)
    assert all(scripts[index] == plain.script(index) for index in searches)
    names = {name for facts in plain.knowledge_bases["train"].facts.values() for name in facts.values()}
    assert {script[0] for script in scripts if len(script) == 1} < names
    assert hesitant[3] == plain[3] and hesitant.on("held_out")[0] == plain.on("held_out")[0]
