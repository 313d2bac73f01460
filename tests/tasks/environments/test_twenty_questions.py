"""Twenty questions: the table, the answers and the ways to ask."""

import pytest

from mmrl.core.types import Prompt
from tasks.twenty_questions import TwentyQuestions
from tasks.twenty_questions.table import ATTRIBUTES, OBJECTS, TABLE
from tasks.twenty_questions.task import Problem


def reset(task=None, secret="duck"):
    problem = Problem(("car", "cat", "duck", "salmon"), secret)
    environment = (task or TwentyQuestions()).make_environment()
    return environment, environment.reset(Prompt("twenty_questions/train/0", info={"problem": problem}))


def test_no_two_objects_have_the_same_attributes_and_no_word_is_both():
    assert len(set(TABLE.values())) == len(OBJECTS) and not set(ATTRIBUTES) & set(OBJECTS)


@pytest.mark.parametrize(
    ("question", "answer"),
    [("Is it an animal?", "Yes."), ("metal", "No."), ("is it Flying ?", "Yes."), ("Is it a cat?", "No.")],
)
def test_questions_are_answered_from_the_table(question, answer):
    environment, _ = reset()
    step = environment.step(question)
    assert step.text == f"\n{answer}\n>" and step.valid and not step.done and step.reward == 0


def test_naming_the_object_ends_the_episode():
    environment, first = reset(TwentyQuestions(step_cost=0.1))
    assert first.reward == 0
    assert environment.step("Is it swimming?").reward == pytest.approx(-0.1)
    step = environment.step("Is it a duck?")
    assert step.terminated and step.reward == pytest.approx(0.9)
    assert step.scores == {"exact": 1.0, "efficiency": pytest.approx(0.95)}


@pytest.mark.parametrize(
    "guess",
    [
        *("duck.", "My guess: duck", '"duck"', "**duck**", "`duck`", "The answer is duck.", "- duck", "Duck!"),
        *(
            "duck\r\n",
            "Answer: Is it a duck?",
            "My guess is duck.",
            "\u201cduck\u201d",
            r"\(duck\)",
            "I think so.\nAnswer: duck",
        ),
        *(
            "I guess duck",
            "I guess duck.",
            "Guess 3: duck",
            "Let me try duck.",
            "Let's try duck!",
            "I'll say duck.",
            "duck!!",
            "duck\u2026",
        ),
        *(
            "(duck)",
            "[duck]",
            r"\boxed{duck}",
            "<guess>duck</guess>",
            "<answer>duck</answer>",
            "1. duck",
            "duck?",
            "duck is my guess.",
        ),
        *(
            "My next guess is **duck**.",
            "My next guess will be duck",
            "Hm.\nGuess: duck",
            "```\nduck\n```",
            r"I guess \text{duck}",
        ),
        *("It's a duck", "It is a duck.", "I think it is a duck.", "Question: Is it a duck?", "Is it a **duck**?"),
        *("Is the object a duck?", "Could it be a duck?", "Question 3: is it the duck?"),
    ],
)
def test_ordinary_forms_of_a_guess_name_the_object(guess):
    environment, _ = reset()
    assert environment.step(guess).terminated


@pytest.mark.parametrize(
    "question",
    [
        "not duck",
        "Answer: duck\nAnswer: cat",
        "duck or cat",
        "duck cat.",
        "",
        ".",
        "Is it a boat?",
        "animal or duck",
        "duck car cat salmon",
        "Is it not a duck?",
        *(
            "I guess duck or cat",
            "It is not a duck",
            "I guess not duck",
            r"\boxed{duck}\boxed{cat}",
            r"not \boxed{duck}",
        ),
        *("<guess>duck</guess><guess>cat</guess>", "Guess 1: duck\nGuess 2: cat", "(duck", "1. duck 2. cat"),
    ],
)
def test_other_questions_are_not_understood(question):
    environment, _ = reset()
    step = environment.step(question)
    assert not step.valid and not step.done


def test_the_prompt_lists_the_objects_and_the_attributes():
    (message,) = TwentyQuestions(objects=5)[0].messages
    assert all(name in message["content"] for name in ATTRIBUTES)
    assert sum(name in message["content"].partition(". ")[0].split(": ")[1].split(", ") for name in OBJECTS) == 5
    with pytest.raises(ValueError, match=r"objects must be in \[2, 52\], got 53"):
        TwentyQuestions(objects=53)
