"""Policies trained against a verifier without its guard exploit it, and with the guard they solve the problems."""

import importlib.util
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("adversaries", Path(__file__).parents[2] / "scripts" / "adversaries.py")
adversaries = sys.modules["adversaries"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(adversaries)


@pytest.fixture(scope="module")
def curves():
    return {
        attack: {guard: adversaries.train(attack, guard) for guard in sides.verifiers}
        for attack, sides in adversaries.ATTACKS.items()
    }


def test_answers_are_stuffed_without_the_guard_alone(curves):
    open_, guarded = curves["stuffing"]["without guard"], curves["stuffing"]["with guard"]
    assert open_.reward[-1] > 0.95 and open_.exact[-1] < 0.05 and open_.tokens[-1] > 4
    assert guarded.exact[-1] > 0.9 and guarded.tokens[-1] < 1.5


def test_completions_grow_without_the_guard_alone(curves):
    open_, guarded = curves["length"]["without guard"], curves["length"]["with guard"]
    assert open_.tokens[0] < 3 and open_.tokens[-1] > 10 and open_.exact[-1] < 0.8
    assert guarded.exact[-1] > 0.9 and guarded.tokens[-1] < 2


def test_boxes_are_padded_without_the_guard_alone(curves):
    open_, guarded = curves["padding"]["without guard"], curves["padding"]["with guard"]
    true_boxes = 15 / 8  # of the eight scenes: 3, 2, 2, 1, 2, 1, 1 and 3
    assert open_.reward[-1] > 0.95 and open_.exact[-1] < 0.2 and open_.tokens[-1] > 2 * true_boxes
    assert guarded.exact[-1] > 0.9 and abs(guarded.tokens[-1] - true_boxes) < 0.1


def test_a_run_is_the_same_again(curves):
    again = adversaries.train("stuffing", "with guard", iterations=5)
    assert again.reward == curves["stuffing"]["with guard"].reward[:5]
