"""VRAG-RL's reward by hand, and what the judge of its recipe reads."""

import pytest

from mmrl.core.types import Prompt
from mmrl.methods.agents.vrag_rl import AnswerVerdict, PageReward
from mmrl.rewards.judges.scripted import ScriptedJudge
from tasks.pages.words import MeaningVerdict
from tests.composed_words import compose_words
from tests.tasks.replies import reply

WEIGHTS = {"judge": 0.7, "structure": 0.1, "ndcg": 0.2}
CALLS = (("?", "a", "ok"), ("[", "0 0 1 1", "ok"))


def grade(question: str) -> str:
    """A judge that finds the answer right where it is the reference."""
    texts = [part.split("\n")[1] for part in question.split("<")[1:] if part.startswith(("reference-", "answer-"))]
    mark = question.split("grade-")[1].split(":")[0]
    return f"grade-{mark}: {int(texts[0] == texts[1])}"


def pay(answer="flat", found=("a", "x", "b"), calls=CALLS, ended="done", needed=("a", "b"), weights=WEIGHTS):
    prompt = Prompt("p", ({"role": "user", "content": "?"},), answer="flat", info={"pages": list(needed)})
    episode = reply(prompt, answer)
    episode.ended = ended
    episode.info |= {"calls": list(calls), "notes": {"?": {"pages": list(found)}, "[": {}}}
    reward = PageReward(ScriptedJudge(f"{__name__}:grade"), AnswerVerdict(), weights, tool="?")
    (episode.scores,) = reward.scores([episode])
    return episode.scores["ndcg"], reward([episode])[0]


def test_rewards_by_hand():
    """Pages a, x, b with a and b needed: (1 + 1 / 2) / (1 + 1 / log2 3) = .919721, and .7 + .1 + .2 * .919721."""
    assert pay() == (pytest.approx(0.919721, abs=1e-6), pytest.approx(0.983944, abs=1e-6))
    assert pay("tall") == (pytest.approx(0.919721, abs=1e-6), pytest.approx(0.283944, abs=1e-6))
    assert pay(found=("x",)) == (0.0, pytest.approx(0.8)) and pay(found=()) == (0.0, pytest.approx(0.8))
    # one of two needed pages, found at once: 1 / (1 + 1 / log2 3)
    assert pay(found=("a",))[0] == pytest.approx(0.613147, abs=1e-6)


def test_without_its_structure_an_episode_earns_nothing():
    assert pay(ended="length")[1] == 0 and pay(calls=(*CALLS, ("[", "9", "BadArguments")))[1] == 0
    assert pay(weights={**WEIGHTS, "judge": 1.0})[1] == pytest.approx(1.283944, abs=1e-6)


def test_prompts_without_pages_and_a_search_of_another_name_are_refused():
    with pytest.raises(ValueError, match="p: info 'pages' must list the pages that the answer needs"):
        pay(needed=())
    prompt = Prompt("p", ({"role": "user", "content": "?"},), answer="flat", info={"pages": ["a"]})
    episode = reply(prompt, "flat")
    episode.info["notes"] = {"find": {"pages": []}}
    with pytest.raises(ValueError, match=r"reward.tool='search' is no tool of the rollout, which has \['find'\]"):
        PageReward(ScriptedJudge(f"{__name__}:grade"), AnswerVerdict(), WEIGHTS).scores([episode])


def test_the_judge_of_the_recipe_is_asked_what_it_learned():
    data = compose_words(("recipe=vrag_rl",)).data
    assert data.reward.form["_target_"].endswith("MeaningVerdict") and set(data.rollout.tools) == {"?", "["}
    episode = reply(Prompt("p", ({"role": "user", "content": "?"},), answer="flat"), "it  is level")
    (question,) = MeaningVerdict().ask([episode])
    assert question.text == "it is level|flat?" and question.options == ("y", "n")
    assert MeaningVerdict().combine([episode], [0.5]) == [{"judge": 1.0}]
