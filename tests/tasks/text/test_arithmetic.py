import pytest

from mmrl.tools.base import BadArguments
from mmrl.tools.chat_parser import HermesParser
from mmrl.tools.executor import ToolExecutor
from mmrl.tools.function import FunctionTool
from tasks.arithmetic import Arithmetic
from tasks.arithmetic.calculator import calculate
from tasks.arithmetic.task import verify
from tests.tasks.replies import reply


def facts(task: Arithmetic) -> list[tuple[str, int, int]]:
    infos = [task[i].info for i in range(len(task))]
    return [(info["operation"], *info["operands"]) for info in infos]


@pytest.mark.parametrize("operations", [("+",), ("+", "-", "*")])
def test_splits_are_disjoint_and_cover_every_problem(operations):
    train = Arithmetic(digits=(1, 1), operations=operations, held_out_fraction=0.2, seed=3)
    seen, unseen = facts(train), facts(train.on("held_out"))
    everything = {(op, a, b) for op in operations for a in range(10) for b in range(10)}
    assert len(seen) + len(unseen) == len(everything) == 100 * len(operations)
    assert set(seen) | set(unseen) == everything


def test_swapping_the_operands_does_not_cross_the_split():
    train = Arithmetic(digits=(2, 2))
    seen, unseen = facts(train), facts(train.on("held_out"))
    # 5050 unordered pairs of 0..99, a fifth of them held out: 1010, most of them in two orders
    assert len({(op, *sorted(ab)) for op, *ab in unseen}) == 1010
    assert not set(seen) & {(op, b, a) for op, a, b in unseen}
    assert len(seen) + len(unseen) == 10_000


def test_working_is_one_line_for_each_operation():
    task = Arithmetic(digits=(1, 1, 1), operations=("-",), steps=True)
    for index in range(50):
        prompt = task[index]
        a, b, c = prompt.info["operands"]
        shown = task.demonstrate(index)
        assert shown == f"{a - b}\n{a - b - c}"
        assert task.score(reply(prompt, shown)) == {"exact": 1.0, "format": 1.0}


def test_no_order_of_three_operands_crosses_the_split():
    train = Arithmetic(digits=(1, 1, 1))
    seen, unseen = facts(train), facts(train.on("held_out"))
    # 220 multisets of three digits, a fifth of them held out
    assert len({tuple(sorted(o)) for _, *o in unseen}) == 44
    assert not {tuple(sorted(o)) for _, *o in seen} & {tuple(sorted(o)) for _, *o in unseen}
    assert len(seen) + len(unseen) == 1000
    assert train[0].answer == sum(train[0].info["operands"])


def test_same_seed_same_problems_and_another_seed_others():
    assert facts(Arithmetic(digits=(1, 1))) == facts(Arithmetic(digits=(1, 1)))
    assert set(facts(Arithmetic(digits=(1, 1)).on("held_out"))) != set(
        facts(Arithmetic(digits=(1, 1), seed=1).on("held_out"))
    )


@pytest.mark.parametrize(
    ("operation", "expected"), [("+", lambda a, b: a + b), ("-", lambda a, b: a - b), ("*", lambda a, b: a * b)]
)
def test_question_answer_and_demonstration_agree(operation, expected):
    task = Arithmetic(digits=(1, 1), operations=[operation])
    for index in range(len(task)):
        prompt = task[index]
        left, right = prompt.info["operands"]
        assert prompt.messages == ({"role": "user", "content": f"{left}{operation}{right}="},)
        assert prompt.answer == expected(left, right)
        assert task.score(reply(prompt, task.demonstrate(index))) == {"exact": 1.0, "format": 1.0}


@pytest.mark.parametrize(
    ("text", "exact", "well_formed"),
    [
        ("85", 1, 1),
        (" 85\n", 1, 1),
        ("7 and 8 make 15, carry 1\n85", 1, 1),  # reasoning on earlier lines is free
        ("86", 0, 1),
        ("-85", 0, 1),
        ("085", 0, 0),
        ("85.", 0, 0),
        ("8 5", 0, 0),
        ("it is 85", 0, 0),
        ("85\nyes", 0, 0),
        ("٨٥", 0, 0),  # int() would read these digits; the verifier does not
        ("", 0, 0),
        ("9" * 5000, 0, 1),  # beyond the length that int() accepts
    ],
)
def test_verify(text, exact, well_formed):
    assert verify(text, 85) == {"exact": exact, "format": well_formed}


def test_zero_has_one_spelling():
    assert verify("0", 0)["exact"] == 1
    assert verify("-0", 0) == {"exact": 0, "format": 0}


def test_refusals_name_the_task():
    task = Arithmetic(digits=(1, 1))
    for index in (-1, len(task)):
        with pytest.raises(IndexError, match=r"'arithmetic' \(train\) has 81 problems, asked for index"):
            task[index]
    with pytest.raises(ValueError, match="'arithmetic' has the splits 'train' and 'held_out', not 'test'"):
        task.on("test")
    with pytest.raises(ValueError, match="operations must be distinct"):
        Arithmetic(operations=("+", "/"))
    with pytest.raises(ValueError, match="digits"):
        Arithmetic(digits=(4, 4))
    with pytest.raises(ValueError, match="held_out_fraction"):
        Arithmetic(held_out_fraction=1.0)
    with pytest.raises(TypeError, match="not text"):
        task.score(reply(task[0], None))


def test_the_words_of_the_question_change_neither_problems_nor_answers():
    plain, worded = Arithmetic(digits=(1, 1)), Arithmetic(digits=(1, 1), question="What is {}?", spaced=True)
    for a, b in zip((plain[i] for i in range(80)), (worded[i] for i in range(80))):
        first, second = a.messages[0]["content"].removesuffix("=").split("+")
        assert b.messages[0]["content"] == f"What is {first} + {second}?"
        assert (a.key, a.answer, a.info) == (b.key, b.answer, b.info)


@pytest.mark.parametrize("question", ["What?", "{} is {}?", ""])
def test_a_question_without_a_place_for_the_problem_is_refused(question):
    with pytest.raises(ValueError, match=r"question must hold \{\} once"):
        Arithmetic(question=question)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("27 * 48", 1296), ("3+4", 7), (" 5 - 12 ", -7), ("-3 * -4", 12), ("999999999999 * 9", 8999999999991)],
)
def test_the_calculator(expression, value):
    assert FunctionTool(calculate).run(expression=expression) == str(value)


@pytest.mark.parametrize(
    "expression", ["", "27", "2 * 3 * 4", "2 / 3", "2 ** 3", "a * b", "٣ * 4", "1" * 13 + " * 1", "__import__('os')"]
)
def test_the_calculator_names_what_it_computes(expression):
    with pytest.raises(BadArguments, match=r"two whole numbers.*such as 27 \* 48"):
        FunctionTool(calculate).run(expression=expression)


@pytest.mark.parametrize("operation", ["+", "-", "*"])
def test_the_script_calls_the_calculator_and_answers_with_its_result(operation):
    task, tools = Arithmetic(digits=(2, 2), operations=(operation,)), {"calculate": FunctionTool(calculate)}
    for index in range(20):
        turn, answer = task.script(index)
        executor = ToolExecutor()
        [pending] = [executor.submit(call, tools) for call in HermesParser().parse(turn, tools)]
        executor.wait([pending])
        assert executor.result(pending).text == answer == str(task[index].answer)
