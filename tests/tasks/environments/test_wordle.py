"""Wordle: marks of guesses, by hand and by the rules of repeated letters."""

import pytest

from mmrl.core.types import Prompt
from tasks.wordle import Wordle
from tasks.wordle.task import compare
from tasks.wordle.words import WORDS


@pytest.mark.parametrize(
    ("guess", "secret", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("stone", "notes", "YYYYY"),
        ("sleep", "sheet", "G-GG-"),
        ("eerie", "three", "Y-G-G"),
        ("lolly", "label", "G-Y--"),
        ("build", "major", "-----"),
    ],
)
def test_marks(guess, secret, marks):
    assert compare(guess, secret) == marks


def test_words_are_five_letters_and_distinct():
    assert {len(word) for word in WORDS} == {5} and len(set(WORDS)) == len(WORDS)
    assert all(word.isascii() and word.islower() for word in WORDS)


def test_an_episode():
    environment = Wordle().make_environment()
    environment.reset(Prompt("wordle/train/0", info={"problem": "crane"}))
    step = environment.step("Crash")
    assert step.text == "\ncrash GGG--\n>" and step.scores == {"exact": 0.0, "efficiency": 0.0, "letters": 0.6}
    assert not environment.step("cranes").valid and not environment.step("crän").valid
    step = environment.step("crane")
    assert step.terminated and step.reward == 1 and step.scores["efficiency"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "guess",
    [
        *("crane.", "My guess: crane", '"crane"', "**crane**", "`CRANE`", "The answer is crane.", "- crane", "Crane!"),
        *("crane\r\n", "Guess: crane", "My guess is crane.", "\u201ccrane\u201d", "So I think.\nAnswer: crane"),
        *(
            "I guess crane",
            "I guess crane.",
            "Guess 3: crane",
            "Let me try crane.",
            "Let's try crane!",
            "I'll say crane.",
            "crane!!",
            "crane\u2026",
        ),
        *(
            "(crane)",
            "[crane]",
            r"\boxed{crane}",
            "<guess>crane</guess>",
            "<answer>crane</answer>",
            "1. crane",
            "crane?",
            "crane is my guess.",
        ),
        *(
            "My next guess is **crane**.",
            "My next guess will be crane",
            "Hm.\nGuess: crane",
            "```\ncrane\n```",
            r"I guess \text{crane}",
        ),
    ],
)
def test_ordinary_forms_of_a_guess_are_guesses(guess):
    environment = Wordle().make_environment()
    environment.reset(Prompt("wordle/train/0", info={"problem": "crane"}))
    assert environment.step(guess).terminated


@pytest.mark.parametrize(
    "guess",
    [
        *("not crane", "crane or crash", "Answer: crane\nAnswer: crash", "crane crash", "", "."),
        *(
            "I guess crane or crash",
            "I guess not crane",
            "I do not guess crane",
            r"\boxed{crane}\boxed{crash}",
            "(crane",
        ),
        *(r"not \boxed{crane}", "<guess>crane</guess><guess>crash</guess>", "Guess 1: crane\nGuess 2: crash"),
    ],
)
def test_near_misses_are_no_guesses(guess):
    environment = Wordle().make_environment()
    environment.reset(Prompt("wordle/train/0", info={"problem": "crane"}))
    assert not environment.step(guess).valid


def test_a_shorter_list_can_be_shown():
    task = Wordle(words=10, show_words=True)
    assert all(word in task[0].messages[0]["content"] for word in WORDS[:10])
    assert {task.problem(i) for i in range(50)} <= set(WORDS[:10])
    with pytest.raises(ValueError, match=r"words must be in \[10, "):
        Wordle(words=5)
