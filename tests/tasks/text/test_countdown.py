"""Countdown: expressions by hand, search traces with a chosen number of backtracks, disjoint splits."""

from fractions import Fraction

import pytest

from tasks.countdown import Countdown
from tasks.countdown.search import count_backtracks, get_result, list_paths, solve, start, write_path
from tasks.countdown.verify import ExpressionError, evaluate, verify
from tests.tasks.replies import reply


@pytest.mark.parametrize(
    ("text", "exact", "numbers", "well_formed"),
    [
        ("6*(9-5)", 1, 1, 1),
        ("(9 - 5) * 6", 1, 1, 1),
        ("9-5=4\n6*4=24\n6*(9-5)\n", 1, 1, 1),  # the steps before it
        ("9+6+5", 0, 1, 1),  # 20
        ("6*6-9-5+2", 0, 0, 1),
        ("6*9-6*5", 0, 0, 1),  # 24, with 6 twice
        ("6*4", 0, 0, 1),  # 24, of other numbers
        ("24", 0, 0, 1),
        ("6*(9-5)=24", 0, 0, 0),
        ("6*(9-5", 0, 0, 0),
        ("6(9-5)", 0, 0, 0),
        ("6*(9--5)", 0, 0, 0),
        ("6*(9-05)", 0, 0, 0),
        ("6**(9-5)", 0, 0, 0),
        ("6/(9-9)", 0, 0, 0),
        ("６*(9-5)", 0, 0, 0),  # a full-width digit
        ("(" * 5000, 0, 0, 0),
        ("back 6 9 5", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_24_out_of_6_9_and_5(text, exact, numbers, well_formed):
    assert verify(text, (6, 9, 5), 24) == {"exact": exact, "numbers": numbers, "format": well_formed}


def test_expressions_are_computed_exactly_with_the_usual_precedence():
    assert evaluate("2+3*4-5") == (9, [2, 3, 4, 5])
    assert evaluate("8-3-2")[0] == 3 and evaluate("8/4/2")[0] == 1  # from the left
    assert evaluate("1/3")[0] == Fraction(1, 3) and evaluate("1/3*3")[0] == 1
    assert evaluate("8/(3-8/3)")[0] == 24
    for wrong in ("", "()", "1+", "+1", "1 2", "1  + 2", "1.0", "1/(2-2)"):
        with pytest.raises(ExpressionError):
            evaluate(wrong)


def test_all_paths_of_three_numbers_by_hand():
    # pairs (1, 2), (1, 4), (2, 4) in order, with + * - and / where it leaves no remainder; all but 2/1 and so on
    first = list(dict.fromkeys(path[0].line for path in list_paths(start((1, 2, 4)))))
    assert first == [
        *("2+1=3", "2*1=2", "2-1=1", "2/1=2"),
        *("4+1=5", "4*1=4", "4-1=3", "4/1=4"),
        *("4+2=6", "4*2=8", "4-2=2", "4/2=2"),
    ]
    assert write_path(solve((6, 9, 5), 24)) == "9-5=4\n6*4=24"
    assert solve((1, 1, 1), 50) is None
    for path in list_paths(start((3, 6, 4))):
        assert evaluate(path[-1].left[0].expression)[0] == get_result(path)


def replay(numbers, text):
    """Check each line of a trace against the numbers that are left; return the results of failed attempts."""
    left, seen, results = list(numbers), {tuple(numbers)}, []
    for line in text.splitlines():
        if line.startswith("back "):
            assert len(left) == 1
            results.append(left[0])
            left = [int(word) for word in line.split()[1:]]
            assert tuple(left) in seen
            continue
        operation, result = line.split("=")
        value, used = evaluate(operation)
        assert value == int(result)
        for number in used:
            left.remove(number)
        left.append(int(result))
        seen.add(tuple(left))
    return results, left


@pytest.mark.parametrize("backtracks", [0, 1, 2, 5, 10])
def test_a_trace_has_the_number_of_backtracks_and_the_solution_without_them(backtracks):
    task, plain = Countdown(backtracks=backtracks, numbers=(3, 4)), Countdown(numbers=(3, 4))
    for index in range(30):
        numbers, target = task.problem(index)
        text, prompt = task.demonstrate(index), task[index]
        *trace, answer = text.splitlines()
        assert sum(line.split()[0] == "back" for line in trace) == backtracks == count_backtracks(text)
        assert answer == plain.demonstrate(index).splitlines()[-1] == prompt.answer
        failed, left = replay(numbers, "\n".join(trace))
        assert left == [target] and target not in failed and len(failed) == backtracks
        one = reply(prompt, text)
        assert task.score(one) == {"exact": 1.0, "numbers": 1.0, "format": 1.0}
        assert one.info["counts"] == {"backtracks": backtracks}


def test_a_mismatched_trace_is_that_of_the_following_problem():
    task, other = Countdown(backtracks=2, count=20), Countdown(backtracks=2, count=20, mismatched=True)
    assert [other.demonstrate(i) for i in range(20)] == [task.demonstrate((i + 1) % 20) for i in range(20)]
    assert [other[i] for i in range(20)] == [task[i] for i in range(20)]


def test_no_set_of_numbers_with_its_target_is_in_both_splits():
    task = Countdown()
    found = [{(tuple(sorted(n)), t) for n, t in map(task.on(s).problem, range(500))} for s in ("train", "held_out")]
    assert found[0] and found[1] and not found[0] & found[1]


def test_answers_without_steps():
    task = Countdown(steps=False, extract="boxed")
    assert task.demonstrate(0) == f"\\boxed{{{task[0].answer}}}"
    assert task.score(reply(task[0], f"It is \\boxed{{{task[0].answer}}}."))["exact"] == 1


@pytest.mark.parametrize(
    "options",
    [
        {"numbers": (2, 3)},
        {"numbers": (4, 3)},
        {"largest": 1},
        {"targets": (0, 5)},
        {"backtracks": 11},
        {"backtracks": 1, "steps": False},
        {"question": "{numbers}"},
    ],
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="countdown"):
        Countdown(**options)
