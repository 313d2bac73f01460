"""Rewards of answers about programs by what the executor says: reward=tasks.programs.rewards:executor_feedback."""

from __future__ import annotations

import re

from tasks.programs.dsl import LETTERS


def executor_feedback(messages: list[dict[str, str]], completion: str, exact: float) -> float:
    """1 for a right answer, -0.3 for a wrong one, -1 for a program or a list that cannot be read.

    A prompt that begins with p asks for a program of the letters of the language, any other one for a list of three
    digits. Programs of these letters run on every list, so that none has the -0.6 of an error while it runs. Source:
    CodeRL, 2022, equation 5, arXiv:2207.01780.
    """
    asks_for_program = str(messages[0]["content"]).startswith("p")
    form = f"[{''.join(LETTERS)}]{{1,4}}" if asks_for_program else "[0-9]{3}"
    if not re.fullmatch(form, completion.strip()):
        return -1.0
    return 1.0 if exact >= 1 else -0.3
