"""Grades of queries: by hand, and against an alignment by brute force."""

import itertools
from dataclasses import replace

import pytest

from mmrl.rewards.judges.questions import Reply, Unreadable
from tasks.sql.closeness import Closeness, QueryGrades, grade_query, write_question
from tests.tasks.replies import reply

RIGHT = "SELECT name FROM emp WHERE age > 30"


@pytest.mark.parametrize(
    ("query", "grade"),
    [
        ("select name from emp where age>30;", 4),  # case, blanks and the end are no tokens
        ("SELECT name FROM emp WHERE age >= 30", 3),
        ("SELECT DISTINCT name FROM emp WHERE age > 31", 2),
        ("SELECT name FROM emp", 0),  # four tokens are missing
        ("SELECT name FROM emp WHERE age", 2),
        ("name SELECT FROM emp WHERE age > 30", 2),  # an exchange is two changes
        ("", 0),
    ],
)
def test_grades_by_hand(query, grade):
    assert grade_query(query, RIGHT) == grade


def brute(ours, theirs):
    """Fewest changes: over all pairs of subsequences of equal length, aligned in order."""
    best = len(ours) + len(theirs)
    for size in range(min(len(ours), len(theirs)) + 1):
        for one in itertools.combinations(ours, size):
            for other in itertools.combinations(theirs, size):
                replaced = sum(a != b for a, b in zip(one, other))
                best = min(best, replaced + len(ours) + len(theirs) - 2 * size)
    return best


def test_grades_as_by_brute_force():
    words = [list(each) for n in range(4) for each in itertools.product("ab", repeat=n)]
    for ours, theirs in itertools.product(words, words):
        assert grade_query(" ".join(ours), " ".join(theirs)) == max(0, 4 - brute(ours, theirs))


def test_problems_have_all_grades_and_their_own_split():
    task = QueryGrades(count=300, held_out=100)
    answers = [task[index].answer for index in range(300)]
    assert set(answers) == set("01234") and max(answers.count(grade) for grade in "01234") < 150
    rights = [{side.problem(i).right for i in range(len(side))} for side in (task, task.on("held_out"))]
    assert not rights[0] & rights[1]


def test_scores_and_verdicts():
    task = QueryGrades()
    prompt = replace(task[0], answer="3")
    assert task.score(reply(prompt, "1")) == {"exact": 0.0, "match": 0.5, "format": 1.0}
    assert set(task.score(reply(prompt, "5")).values()) == set(task.score(reply(prompt, "33")).values()) == {0.0}
    prompt = replace(prompt, answer=RIGHT)
    (question,) = Closeness().ask([reply(prompt, "SELECT nome")])
    assert question.text == write_question("select nome", RIGHT) == f"{RIGHT.lower()}\nselect nome\n"
    assert Closeness().combine([reply(prompt, "")], [question.read(Reply(" 1\n"))]) == [{"judge": 0.25}]
    with pytest.raises(Unreadable, match="no grade from 0 to 4"):
        question.read(Reply("7"))
