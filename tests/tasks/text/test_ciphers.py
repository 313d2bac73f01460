"""Toy languages: letters and order of words of each, directions, and chrF of answers."""

import pytest

from tasks.ciphers import Ciphers
from tasks.ciphers.task import LETTERS, draw_alphabet
from tests.tasks.replies import reply


def test_languages_have_their_own_letters_and_every_second_one_its_own_order():
    task = Ciphers()
    alphabets = [draw_alphabet(language, 0) for language in "ABCDEF"]
    assert len(set(alphabets)) == 6 and all(sorted(letters) == list(LETTERS) for letters in alphabets)
    back = str.maketrans(alphabets[1], LETTERS)
    assert task.write("B", ("red", "fox")).translate(back) == "fox red"
    assert task.write("A", ("red", "fox")).translate(str.maketrans(alphabets[0], LETTERS)) == "red fox"


def test_both_directions_of_a_sentence_are_in_one_split():
    task = Ciphers(words=(1, 1), count=300)
    words = [{task.on(split).problem(i)[1] for i in range(200)} for split in ("train", "held_out")]
    assert not words[0] & words[1]


def test_prompts_show_the_letters_on_request_and_name_the_direction():
    prompt = Ciphers(directions=("CD",), shown=True)[0]
    lines = prompt.messages[0]["content"].splitlines()
    assert lines[0] == f"C: {draw_alphabet('C', 0)}" and lines[2].startswith("C>D: ") and prompt.info == {"task": "CD"}


def test_an_answer_that_is_stuffed_earns_no_similarity():
    task = Ciphers()
    prompt = task[0]
    assert task.score(reply(prompt, prompt.answer)) == {"exact": 1.0, "chrf": 1.0, "format": 1.0}
    near = task.score(reply(prompt, prompt.answer[:-1]))
    assert near["exact"] == 0 and 0.5 < near["chrf"] < 1
    assert task.score(reply(prompt, f"{prompt.answer} " * 3))["chrf"] == 0


@pytest.mark.parametrize(
    "options", [{"directions": ("AA",)}, {"directions": ("AZ",)}, {"directions": ()}, {"words": (3, 2)}]
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="ciphers"):
        Ciphers(**options)
