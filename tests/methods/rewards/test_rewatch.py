"""Reward of ReWatch-R1, r = accuracy (1 + observation + reasoning) + format, by hand and on traces."""

import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.rewards.compose import Composition, Gate
from mmrl.rewards.scoring import score
from tasks.films import Films
from tests.composed_words import compose_words
from tests.tasks.replies import reply
from tests.tasks.text.test_films import FILM, TRUE

PROMPT = Prompt("films/train/0", answer=FILM.answer, info={"film": FILM})


@pytest.fixture(scope="module")
def reward():
    chosen = compose_words(("recipe=rewatch",)).data.reward
    return Composition(dict(chosen.weights), {name: Gate(**gate) for name, gate in chosen.gates.items()})


@pytest.mark.parametrize(
    ("accuracy", "observed", "sufficient", "form", "expected"),
    [
        (1.0, 2 / 3, 1.0, 1.0, 3.666667),  # 1 (1 + 2/3 + 1) + 1
        (0.0, 1.0, 1.0, 1.0, 1.0),  # perfect observations of a wrong answer earn nothing
        (1.0, 0.0, 0.0, 1.0, 2.0),
        (1.0, 1.0, 1.0, 0.0, 3.0),
        (0.0, 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_by_hand(reward, accuracy, observed, sufficient, form, expected):
    scores = {"exact": accuracy, "observed": observed, "sufficient": sufficient, "format": form}
    assert reward([Episode(PROMPT, 0, 0, scores=scores)]) == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRUE, 4.0),
        (f"find cat sits: 1\n{TRUE}", 1 * (1 + 2 / 3 + 1) + 1),  # the event is in frames 1 and 3
        ("find cat eats: 2\nlook 2: cat eats, fox naps\nruns", 1.0),
        ("naps", 1.0),  # no observation: 0, not a division by 0; and no format
        ("find cat sits: 1\nnaps", 2.0),
        ("find cat eats: 1\nlook 1: fox naps\nnaps", 3.0),  # invented: the reader believes it, the judge does not
    ],
)
def test_traces_are_rewarded(reward, text, expected):
    one = reply(PROMPT, text)
    score([one], Films(), reward)
    assert one.reward == pytest.approx(expected)
