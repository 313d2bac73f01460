"""Mathematical equality: golden pairs, and expressions on which sympy hangs, from processes, threads and tasks."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mmrl.rewards.math_equality import compare_answers
from tasks.dataset import DatasetTask
from tests.tasks.replies import reply

pytest.importorskip("math_verify")

GOLDEN = [
    ("1/2", "0.5", "equal"),
    (r"\frac{1}{2}", "0.5", "equal"),
    ("x+1", "1+x", "equal"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", "equal"),
    (r"\{1,2\}", r"\{2,1\}", "equal"),
    ("(1,2)", "(1, 2)", "equal"),
    ("(1,2)", "(2,1)", "different"),
    ("1,000", "1000", "equal"),
    ("3", "4", "different"),
    ("3", "", "different"),
    ("3", "3" * 5000, "different"),
    (r"\frac{1}{3}", "0.33", "different"),
    ("x+1", "x-1", "different"),
    ("42", "42²", "different"),
    ("42", "42<|im_end|>41", "different"),
    ("42", "42</s>", "different"),
    ("3", "x² + 3", "different"),
    ("42", "42%", "different"),
    ("0.5", "50%", "equal"),
    ("(1,2)", "{1,2}", "different"),
    ("(1,2)", r"\{1,2\}", "different"),
    ("42", r"42\\43", "different"),
    ("42", "42:1", "different"),
    ("42", "42‰", "different"),
    ("42", "42'", "different"),
    ("42", "42_{8}", "different"),
    ("42", "42 or 43", "different"),
    ("42", "not 42", "different"),
    ("3", r"\neq 3", "different"),
    ("3", "\u2260 3", "different"),
    ("3", r"\leq 3", "different"),
    ("3", r"$\ge 3$", "different"),
    ("3", "!= 3", "different"),
    ("3", r"\not= 3", "different"),
    ("3", r"\in 3", "different"),
    (r"\frac{\sqrt{2}}{2}", r"\ne \frac{\sqrt{2}}{2}", "different"),
    (r"\left(1,2\right)", "(1,2)", "equal"),
    ("3", r"\left(3\right)", "equal"),
    ("x>3", "x > 3", "equal"),
    ("3", "m+n=3", "equal"),
    ("3", "3...4", "different"),
    ("3", "3{}4", "different"),
    ("3", r"3.\overline{3}", "different"),
    ("10/3", r"3.\overline{3}", "equal"),
    ("42", "42\u2088", "different"),
    ("1/2", "½", "equal"),
    ("x^2", "x²", "equal"),
    ("42", "42 cm", "equal"),
    ("-7", "\u20127", "equal"),
]
BASES = ("9^{9^{9^{9}}}", "10^{10^{10}}+1", "(10^{12})!", r"\sum_{k=1}^{10^9} 1/k^2", r"\prod_{k=1}^{10^8} k")
HANGING = [*BASES, *(f"7^{{8^{{9^{{{n}}}}}}}" for n in (5, 17, 29))]


def test_golden_pairs():
    assert compare_answers([(right, given) for right, given, _ in GOLDEN]) == [outcome for *_, outcome in GOLDEN]


def test_hanging_expressions_end_within_the_limit():
    """Each alone, from a thread as well; a killed process starts again, which the next comparison waits for."""
    compare_answers([("1", "2.0")])
    late = []
    for number, expression in enumerate(HANGING):
        compare_answers([("1/2", f"{number}/3")], timeout_s=0.25)  # the processes are started
        started = time.monotonic()
        if number % 2:
            with ThreadPoolExecutor(1) as pool:
                outcome = pool.submit(compare_answers, [("1", expression)], 0.25).result()
        else:
            outcome = compare_answers([("1", expression)], timeout_s=0.25)
        assert outcome == ["timeout"], expression
        late.append(time.monotonic() - started)
    assert sorted(late)[len(late) // 2] < 10


def test_a_task_scores_expressions_and_names_timeouts(tmp_path):
    rows = [{"question": f"q{i}", "answer": r"\frac{1}{2}"} for i in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = DatasetTask(str(tmp_path / "a.jsonl"), equality="math", extract="boxed", equality_timeout_s=1.0)
    said = [r"so \boxed{0.5}", r"\boxed{\frac{2}{4}}", r"\boxed{1}", r"\boxed{9^{9^{9^{9}}}}", "one half"]
    scores = task.scores([reply(task[0], text) for text in said])
    assert [score["exact"] for score in scores] == [1, 1, 0, 0, 0]
    assert [score["timeout"] for score in scores] == [0, 0, 0, 1, 0]
    assert [score["format"] for score in scores] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("line", ["raise ImportError('antlr4 has another version')", "import os; os._exit(3)"])
def test_a_comparison_that_cannot_start_is_an_error_and_no_difference(tmp_path, monkeypatch, line):
    (tmp_path / "math_verify.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        RuntimeError, match=r"task\.equality=math cannot start math-verify: .*(another version|status 3)"
    ):
        compare_answers([("x+1", "1+x")], timeout_s=4.25 + len(line) / 1000)  # processes of its own
