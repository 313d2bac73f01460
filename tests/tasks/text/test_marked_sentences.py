"""Marked sentences: what earns the score, and which demonstrations show the marks."""

import numpy as np
import pytest

from tasks.grammar import Grammar
from tasks.grammar.marks import MarkedSentences
from tests.tasks.replies import reply

FREE = {"levels": [0], "refusals": 0.0}


def test_marks_stand_in_front_of_a_sentence():
    """yybaki has two marks and a sentence, ybaki one; three, marks alone and marks behind or inside earn nothing."""
    task = MarkedSentences(**FREE)
    expected = {"yyba": 1.0, "yba": 0.5, "ba": 0.0, "yyyba": 0.0, "yy": 0.0, "byya": 0.0, "ybay": 0.0, "yydaki": 1.0}
    assert {answer: task.score(reply(task[0], answer))["marked"] for answer in expected} == expected
    scores = task.score(reply(task[0], "ba"))
    assert scores["exact"] == 1.0 and task.score(reply(task[0], "yyba"))["exact"] == 0.0


def test_a_share_of_the_demonstrations_shows_the_marks():
    """Of 1,000 demonstrations .2 +- .04, three standard deviations of sqrt(.2 * .8 / 1000) = .0126."""
    task, plain = MarkedSentences(**FREE, shown=0.2), Grammar(**FREE)
    shown = [task.demonstrate(i) for i in range(1000)]
    assert np.mean([text.startswith("yy") for text in shown]) == pytest.approx(0.2, abs=0.04)
    assert [text.removeprefix("yy") for text in shown] == [plain.demonstrate(i) for i in range(1000)]
    assert all(MarkedSentences(**FREE).demonstrate(i) == plain.demonstrate(i) for i in range(20))
    with pytest.raises(ValueError, match="shown"):
        MarkedSentences(shown=1.5)
