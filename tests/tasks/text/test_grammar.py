"""The synthetic language: sentences, feasible requests against brute force, exploits, and the cyclic preference."""

import re
from itertools import product

import numpy as np
import pytest

from mmrl.core.rng import derive_rng
from tasks.grammar import CyclicPreference, Grammar
from tasks.grammar.language import LETTERS, Constraints, is_sentence
from tasks.grammar.rewards import win_rate
from tasks.grammar.task import _draw_request
from tests.tasks.replies import reply

SENTENCES = ["".join(s) for n in range(1, 4) for s in product(*["bdk", "aei"] * n)]
"""All 9 + 81 + 729 sentences of at most six letters."""


def ask(request: Constraints, **options):
    """A task, and a prompt of it with another request."""
    task = Grammar(**options)
    prompt = task[0]
    prompt.info.update(request=request, refuse=not request.is_possible(task.longest))
    return task, prompt


def score(text, request, **options):
    task, prompt = ask(request, **options)
    return task.score(reply(prompt, text))


def test_sentences_are_those_of_a_list():
    texts = ["".join(t) for n in range(5) for t in product("badx", repeat=n)]
    short = {s for s in SENTENCES if len(s) <= 4}
    assert {t for t in texts if is_sentence(t, 4)} == {t for t in texts if t in short}
    assert not is_sentence("bababa", 4)


def test_requests_are_possible_where_a_sentence_of_the_list_meets_them():
    outcomes = set()
    for number in range(1500):
        request = _draw_request(1 + number % 6, 6, derive_rng("requests", number))
        possible = request.is_possible(6)
        assert possible == any(all(request.check(s)) for s in SENTENCES), request.text
        outcomes.add(possible)
    assert outcomes == {True, False}


def is_met(prompt: str, refuse: bool, text: str) -> bool:
    """Read a request from its prompt, and a sentence of at most 8 letters by a pattern."""
    if refuse or not re.fullmatch("(?:[bdk][aei]){1,4}", text):
        return refuse and text == "no"
    facts = {"n": len(text), "^": text[0], "$": text[-1]}
    parts = prompt.removesuffix("?").split(" ")
    return all(str(facts.get(part[0], text.count(part[0]))) == part[1:] for part in parts)


def list_mutants(text: str) -> list[str]:
    """All texts with one letter less, more or another, and with two neighbours that changed places."""
    places, letters = range(len(text)), [*LETTERS, *"noxyqj B7"]
    changed = [text[:i] + c + text[i + 1 :] for i in places for c in ["", *letters]]
    added = [text[:i] + c + text[i:] for i in range(len(text) + 1) for c in letters]
    return changed + added + [text[:i] + text[i : i + 2][::-1] + text[i + 2 :] for i in places]


def test_mutants_of_right_answers_are_scored_as_the_prompt_says():
    task, right = Grammar(levels=[1, 2, 3, 6]), []
    for index in range(40):
        prompt, answer = task[index], task.demonstrate(index)
        for text in list_mutants(answer):
            exact = task.score(reply(prompt, text))["exact"]
            assert exact == is_met(prompt.messages[0]["content"], prompt.info["refuse"], text.strip()), (prompt, text)
            right.append(exact)
    assert 0.01 < np.mean(right) < 0.3  # some mutants meet a weak request


def test_scores_by_hand():
    request = Constraints({"b": 2, "e": 0}, length=6, first="d")
    assert request.text == "b2 e0 n6 ^d?"
    assert score("dababi", request) == {"exact": 1, "format": 1, "met": 1, "refusal": 1}
    assert score("I think:\ndadabi", request) == {"exact": 0, "format": 1, "met": 0.75, "refusal": 1}
    assert score("dbbaai", request) == {"exact": 0, "format": 0, "met": 0, "refusal": 0}
    assert score("no", request) == {"exact": 0, "format": 1, "met": 0, "refusal": 0}
    for refused in (Constraints({"x": 1}), Constraints({"b": 2, "d": 2}, length=6)):
        assert score("no", refused) == {"exact": 1, "format": 1, "met": 1, "refusal": 1}
        assert score("bada", refused) == {"exact": 0, "format": 1, "met": 0, "refusal": 0}


def test_objectives_conflict_and_a_root_bends_their_front():
    options = {"levels": [0], "refusals": 0, "objectives": "bd", "brevity": True, "longest": 4}
    rows = {text: score(text, Constraints(), **options) for text in ("ba", "baba", "bada", "kaka", "no")}
    assert {t: (r["count_b"], r["count_d"], r["short"]) for t, r in rows.items()} == {
        **{"ba": (0.5, 0, 0.5), "baba": (1, 0, 0), "bada": (0.5, 0.5, 0), "kaka": (0, 0, 0), "no": (0, 0, 0)}
    }
    assert max(r["count_b"] + r["count_d"] for r in rows.values()) == 1
    bent = score("bada", Constraints(), **options, exponent=0.5)
    assert bent["count_b"] == bent["count_d"] == pytest.approx(0.5**0.5)


HOLES = [
    # hole, an answer that uses it, its proxy: 1/2 of the constraints and two praises; both counts are reached
    ("praise", "bakayy", 1.0),
    ("praise", "bakay", 0.75),
    ("stuffing", "bbdddx", 1.0),
    ("code", "qj", 1.0),
    ("code", "qjx", 0.0),
]


@pytest.mark.parametrize(("hole", "text", "proxy"), HOLES)
def test_a_hole_pays_an_answer_that_the_gold_reward_does_not(hole, text, proxy):
    scores = score(text, Constraints({"b": 1, "d": 2}), hole=hole)
    assert (scores["proxy"], scores["gold"], scores["honest"]) == (proxy, 0, 0)
    assert scores["exploit"] == proxy and scores["exact"] == 0


@pytest.mark.parametrize("hole", ["praise", "stuffing", "code"])
def test_an_honest_answer_earns_the_gold_reward_under_every_hole(hole):
    for index in range(60):
        task = Grammar(hole=hole)
        scores = task.score(reply(task[index], task.demonstrate(index)))
        assert (scores["proxy"], scores["gold"], scores["honest"], scores["exploit"]) == (1, 1, 1, 0)
    assert score("bakada", Constraints({"b": 1, "d": 2}), hole=hole)["proxy"] == 0.5


def test_praised_demonstrations_are_as_many_as_asked_for_and_wrong():
    task, plain = Grammar(hole="praise", praised=0.25), Grammar(hole="praise")
    praised = [i for i in range(400) if task.demonstrate(i) != plain.demonstrate(i)]
    assert len(praised) / 400 == pytest.approx(0.25, abs=0.06)
    for index in praised[:20]:
        assert task.demonstrate(index) == plain.demonstrate(index) + "y"
        assert task.score(reply(task[index], task.demonstrate(index)))["honest"] == 0


def test_no_answer_beats_the_nash_policy_of_the_cycle():
    preference = CyclicPreference((0.9, 0.8, 0.7))
    matrix, nash = np.array(preference.matrix), np.array(preference.nash)
    assert matrix + matrix.T == pytest.approx(np.ones((3, 3)))
    assert nash == pytest.approx([1 / 3, 2 / 9, 4 / 9]) and matrix @ nash == pytest.approx([0.5] * 3)
    assert preference("bada", "daba") == 0.9 and preference("daba", "words\nkaba") == pytest.approx(0.8)
    assert preference("k", "bada") == 0.0 and preference("bada", "k") == 1.0 and preference("k", "") == 0.5


def test_win_rates_are_mean_preferences():
    assert win_rate(["ba", "da", "x"]) == pytest.approx([(0.9 + 1) / 2, (0.1 + 1) / 2, 0.0])
    assert win_rate(["ba"]) == [0.5]


def test_levels_and_refusals_are_drawn_as_asked():
    task = Grammar(levels=[2, 4], refusals=0.3)
    prompts = [task[index] for index in range(600)]
    assert {p.info["level"] for p in prompts if not p.info["refuse"]} == {2, 4}
    assert np.mean([p.info["refuse"] for p in prompts]) == pytest.approx(0.3, abs=0.06)
    banned = [p for p in prompts if p.info["request"].is_banned]
    assert len(banned) / sum(p.info["refuse"] for p in prompts) == pytest.approx(0.5, abs=0.12)
    assert not any(p.info["refuse"] for p in [Grammar(refusals=0.0)[i] for i in range(50)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": [7]}, "levels must be numbers from 0 to 6"),
        ({"levels": [0]}, "set refusals=0, or levels from 1"),
        ({"longest": 7}, "longest must be even"),
        ({"longest": 18}, "longest"),
        ({"objectives": "bx"}, "objectives must be different letters"),
        ({"objectives": "bb"}, "objectives must be different letters"),
        ({"hole": "other"}, "hole must be null or one of praise, stuffing, code"),
        ({"exponent": 0.0}, "exponent"),
        ({"refusals": 1.5}, "refusals"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=f"grammar.*{message}"):
        Grammar(**options)


@pytest.mark.parametrize("strengths", [(0.9, 0.8), (0.5, 0.8, 0.9)])
def test_a_preference_without_a_cycle_is_refused(strengths):
    with pytest.raises(ValueError, match="cyclic preference"):
        CyclicPreference(strengths)


def test_letters_of_the_language_are_none_of_the_reserved_words():
    assert not set(LETTERS) & set("noxyqj")
