"""Films as captions: questions that need two hops, traces, and what is judged of them."""

import pytest

from tasks.films import Films
from tasks.films.film import Film, is_useful
from tasks.films.verify import answer_from_trace, is_well_formed, judge_step, mean_observation_score, parse_trace
from tests.tasks.replies import reply

FRAMES = (
    {"cat": "sits", "fox": "runs"},
    {"cat": "eats", "fox": "naps"},
    {"cat": "sits", "fox": "runs"},
)
FILM = Film(FRAMES, ("cat", "eats"), "fox")
TRUE = "find cat eats: 2\nlook 2: cat eats, fox naps\nnaps"


def film(event=("cat", "eats"), asked="fox", frames=FRAMES):
    return Film(frames, event, asked)


def test_a_question_has_one_answer_that_neither_its_text_nor_the_summary_gives():
    assert FILM.answer == "naps" and FILM.summary == {"cat": "sits", "fox": "runs"} and is_useful(FILM)
    assert not is_useful(film(("cat", "sits")))  # in two frames
    assert not is_useful(film(("cat", "digs")))  # in none
    twice = ({"cat": "eats", "fox": "eats"}, *FRAMES[:1] * 2)
    assert not is_useful(film(frames=twice))  # the verb of the question
    still = ({"cat": "eats", "fox": "runs"}, *FRAMES[:1] * 2)
    assert not is_useful(film(frames=still))  # the fox runs all the time
    task = Films(count=300)
    assert all(is_useful(task.problem(index)) for index in range(100))


@pytest.mark.parametrize(
    ("step", "score"),
    [
        (("find", "cat eats", "2"), 1.0),
        (("find", "cat sits", "1 3"), 1.0),
        (("find", "cat sits", "1"), 0.0),
        (("find", "cat digs", "none"), 1.0),
        (("find", "cat", "2"), 0.0),
        (("look", "2", "cat eats, fox naps"), 1.0),
        (("look", "2", "cat eats, fox runs"), 0.5),
        (("look", "2", "dog eats"), 0.0),
        (("look", "4", "cat eats"), 0.0),
        (("look", "cat eats", "cat eats"), 0.0),
        (("look", "2", ""), 0.0),
    ],
)
def test_an_observation_is_held_against_the_captions(step, score):
    assert judge_step(FILM, step) == score


def test_a_trace_is_read_line_by_line():
    steps, answer = parse_trace(TRUE)
    assert steps == [("find", "cat eats", "2"), ("look", "2", "cat eats, fox naps")] and answer == "naps"
    assert is_well_formed(TRUE) and not is_well_formed("naps") and not is_well_formed(TRUE[:-5])
    assert not is_well_formed(f"well\n{TRUE}") and parse_trace(f"well\n{TRUE}") == (steps, "naps")
    assert parse_trace("") == ([], "") and mean_observation_score(FILM, []) == 0
    assert mean_observation_score(FILM, [*steps, ("find", "cat sits", "1")]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("trace", "answer"),
    [
        (TRUE, "naps"),
        ("find cat eats: 2\nlook 2: fox digs\nnaps", "digs"),  # what was seen counts, true or not
        ("find cat eats: 2\nnaps", None),
        ("look 2: fox naps\nnaps", None),
        ("find cat eats: 2\nlook 1: fox runs\nnaps", None),
        ("find cat sits: 2\nlook 2: fox naps\nnaps", None),  # of another event
        ("find cat eats: 2\nlook 2: cat eats\nnaps", None),
        ("find cat eats: 1\nlook 1: fox runs\nfind cat eats: 2\nlook 2: fox naps\nnaps", "naps"),
    ],
)
def test_a_reader_answers_from_the_trace_alone(trace, answer):
    assert answer_from_trace((FILM.event, FILM.asked), parse_trace(trace)[0]) == answer


def test_demonstrations_are_true_unless_they_are_invented():
    # at 0.5 a number is right in .5 + .5 / 5 = .6 of the cases, states in .6 * .5 = .3 and by chance in about .1
    for invented, bounds in ((0.0, (1.0, 1.0)), (0.5, (0.4, 0.6))):
        task = Films(count=300, invented=invented)
        scores = [task.score(reply(task[i], task.demonstrate(i))) for i in range(100)]
        assert all(each["exact"] == each["format"] == 1 for each in scores)
        mean = sum(each["observed"] for each in scores) / len(scores)
        assert bounds[0] <= mean <= bounds[1]
    assert Films(invented=0.5)[7] == Films()[7]


@pytest.mark.parametrize("options", [{"frames": 2}, {"animals": 1}, {"animals": 7}, {"invented": 1.1}])
def test_films_without_a_question_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be in"):
        Films(**options)


QUESTION = (FILM.event, FILM.asked)


@pytest.mark.parametrize(
    "trace",
    [
        "find cat eats: 2\nlook 2: fox naps, fox digs, fox runs\nnaps",
        "find cat eats: 2\nlook 2: fox runs\nlook 2: fox digs\nlook 2: fox naps\nnaps",
        "find cat eats: 2\nlook 2: fox naps\nlook 2: cat eats, fox runs\nnaps",
    ],
)
def test_states_that_contradict_each_other_do_not_suffice(trace):
    assert answer_from_trace(QUESTION, parse_trace(trace)[0]) is None


@pytest.mark.parametrize(
    "lines",
    [
        ["look 1: cat sits, fox runs"] * 30,
        ["find cat sits: 1 3"] * 30,
        ["find cat digs: none", "look 3: fox runs"] * 15,
        TRUE.splitlines()[:2] * 15,  # each line counts once
    ],
)
def test_true_lines_that_the_question_does_not_need_lower_the_observations(lines):
    needed = TRUE.splitlines()[:2]
    assert mean_observation_score(FILM, parse_trace("\n".join([*lines, "naps"]))[0]) <= 2 / 30
    assert mean_observation_score(FILM, parse_trace("\n".join([*needed, *lines, "naps"]))[0]) <= 2 / 30
