"""Evaluations: solutions, injected errors and verdicts by hand, formats in turn, replies that are read."""

import numpy as np
import pytest

from mmrl.core.errors import ConfigError
from tasks.evaluations import Evaluations
from tasks.evaluations.solutions import count_right_steps, find_first_error, inject_error, solve
from tasks.evaluations.task import VERDICTS, Problem
from tests.tasks.replies import reply


def test_solutions_and_verdicts_by_hand():
    """3 + 4 = 7, 7 + 7 = 14, whose last digit is 4."""
    assert solve("347") == "74" and solve("000") == "00"
    by_hand = {"74": (0, 2), "75": (2, 1), "84": (1, 0), "x4": (1, 0), "7x": (2, 1), "7": (2, 1), "4": (1, 0)}
    for solution, (error, right) in {**by_hand, "": (1, 0), "744": (3, 2)}.items():
        assert (find_first_error("347", solution), count_right_steps("347", solution)) == (error, right)


def test_injected_errors_by_listing():
    """Every error that can be drawn for 347, of solution 74: a wrong first digit d leads on to d + 7."""
    rng = np.random.default_rng(0)
    drawn = {kind: {inject_error("347", kind, rng) for _ in range(600)} for kind in ("digit", "type", "missing")}
    first = {f"{d}{(d + 7) % 10}" for d in range(10) if d != 7}
    assert drawn["digit"] == first | {f"7{d}" for d in range(10) if d != 4}
    assert drawn["type"] == {"x4", "7x"} and drawn["missing"] == {"4", "7"}
    # a step left out never gives the right solution, since it is shorter
    assert all(inject_error("300", "missing", rng) == "3" for _ in range(20)) and solve("300") == "33"


@pytest.mark.parametrize(
    "form, solutions, verdict, text",
    [
        ("pair", ("74", "7x"), "1", "p347:74,7x?"),
        ("pair", ("84", "74"), "2", "p347:84,74?"),
        ("verify", ("74",), "y", "v347:74?"),
        ("reference", ("84",), "n", "r347:84=4?"),  # the right result by a wrong step
        ("step", ("75",), "2", "s347:75?"),
        ("rating", ("75",), "1", "g347:75?"),
    ],
)
def test_prompts_by_hand(form, solutions, verdict, text):
    task = Evaluations()
    drawn = Problem("", "347", (*solutions, "74")[:2], "", False)
    problem = task._judge(drawn, form)
    assert problem == Problem(form, "347", solutions, verdict, False)
    prompt = task.write_prompt(problem, "evaluations/train/0")
    assert prompt.messages[0]["content"] == text and prompt.answer == verdict
    assert task.score(reply(prompt, f"74>{verdict}")) == {"exact": 1.0, "format": 1.0, "reasons": 1.0}
    # a right verdict after wrong reasons is kept by rejection sampling, as in the paper
    assert task.score(reply(prompt, f"00>{verdict}")) == {"exact": 1.0, "format": 1.0, "reasons": 0.0}
    for unreadable in (verdict, f"74>{verdict}{verdict}", f"74>q>{verdict}", f">{verdict}", ""):
        assert set(task.score(reply(prompt, unreadable)).values()) == {0.0}


def test_formats_come_in_turn_and_all_verdicts_occur():
    task = Evaluations(direct=0.5)
    prompts = [task[i] for i in range(300)]
    assert [p.info["format"] for p in prompts[:5]] == list(VERDICTS)
    for form, verdicts in VERDICTS.items():
        assert {p.answer for p in prompts if p.info["format"] == form} == set(verdicts)
    direct = [p for p in prompts if p.info["direct"]]
    assert 110 < len(direct) < 190 and all(p.messages[0]["content"].endswith("!") for p in direct)
    assert task.score(reply(direct[0], direct[0].answer)) == {"exact": 1.0, "format": 1.0, "reasons": 1.0}
    assert task.score(reply(direct[0], f"74>{direct[0].answer}"))["format"] == 0.0


@pytest.mark.parametrize("wrong", [{"formats": ["list"]}, {"formats": []}, {"errors": ["typo"]}, {"wrong": 2.0}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises((ConfigError, ValueError), match="task 'evaluations'"):
        Evaluations(**wrong)
