"""Small functions judged by hidden tests: right programs, broken ones, and programs that attack the verifier."""

import ast

import pytest

from mmrl.core.types import Prompt
from tasks.code import Code
from tasks.code.driver import encode
from tasks.code.forms import Uncounted
from tasks.code.generator import STEPS, Chosen, Function, count_operations, run_trusted
from tasks.code.interpreter import Interpreter
from tasks.code.rewards import unit_test_feedback
from tasks.code.runner import run_candidates
from tests.tasks.code import code_counts
from tests.tasks.code.code_answers import HOSTILE
from tests.tasks.replies import reply

TASK = Code()
GIVEN = ([4, 5], [], [-3, 1, 1], [10])
SUM = "def solve(x):\n    return sum(x)"


@pytest.fixture
def prompt():
    """Write the sum of a list, with four hidden tests."""
    info = {
        "calls": [([encode(given)], {}) for given in GIVEN],
        "right": [encode(sum(given)) for given in GIVEN],
        "inputs": ("[4, 5]", "[]", "[-3, 1, 1]", "[10]"),
    }
    return Prompt("code/train/0", answer=SUM, info=info)


def test_scores_by_hand(prompt):
    slow = "def solve(x):\n    total = 0\n    for v in x:\n        total += v\n    return total"
    half = "def solve(x):\n    if len(x) > 1:\n        return sum(x)\n    return None"
    late = "def solve(x):\n    return sum(x) / (len(x) > 0) if not x else sum(x)"
    episodes = [reply(prompt, text) for text in (SUM, slow, half, late)]
    expert, looped, partial, raised = TASK.scores(episodes)
    assert expert == {"exact": 1, "tests": 1, "parses": 1, "runs": 1, "speed": 1}
    assert looped["exact"] == 1 and 0 < looped["speed"] < 0.5
    assert partial == {"exact": 0, "tests": 0.5, "parses": 1, "runs": 1, "speed": 0}
    assert raised == {"exact": 0, "tests": 0.75, "parses": 1, "runs": 0, "speed": 0}
    infos = [episode.info for episode in episodes]
    assert [info["outcome"] for info in infos] == ["passed", "passed", "failed", "raised"]
    assert (infos[3]["reason"], infos[3]["error_line"]) == ("ZeroDivisionError", 2)
    assert infos[2]["executed_lines"] == (1, 2, 3, 4)
    assert infos[0]["operations"] == count_operations(SUM, prompt.info["inputs"])


def test_lines_that_never_run_are_not_executed(prompt):
    episode = reply(prompt, "def solve(x):\n    if len(x) > 9:\n        x = 0\n    return sum(x)")
    assert TASK.score(episode)["exact"] == 1 and episode.info["executed_lines"] == (1, 2, 4)


def test_no_hostile_program_passes_a_test_and_each_has_a_name(prompt):
    episodes = [reply(prompt, program) for program, _ in HOSTILE.values()]
    scores = TASK.scores(episodes)
    assert {kind: e.info["outcome"] for kind, e in zip(HOSTILE, episodes)} == {
        k: word for k, (_, word) in HOSTILE.items()
    }
    assert [kind for kind, score in zip(HOSTILE, scores) if score["exact"] or score["speed"]] == []
    assert [kind for kind, score in zip(HOSTILE, scores) if score["tests"]] == []


def test_no_program_changes_the_count_of_its_operations(prompt):
    honest = TASK.scores([reply(prompt, code_counts.SUM.format(first="pass"))])[0]["speed"]
    programs = code_counts.HOSTILE
    scores = TASK.scores([reply(prompt, program) for program in programs.values()])
    assert len(programs) >= 25 and 0 < honest < 0.5
    assert [k for k, score in zip(programs, scores) if score["speed"] > honest] == []


def test_usual_programs_pass_and_those_that_are_not_counted_say_why(prompt):
    programs = code_counts.ORDINARY
    episodes = [reply(prompt, program) for program in programs.values()]
    scores = TASK.scores(episodes)
    assert {kind: e.info for kind, e, score in zip(programs, episodes, scores) if not score["exact"]} == {}
    assert [
        k for k, e, score in zip(programs, episodes, scores) if (score["speed"] == 0) != bool(e.info["uncounted"])
    ] == []
    assert len(programs) >= 90 and sum(bool(episode.info["uncounted"]) for episode in episodes) < 45


def test_the_interpreter_computes_what_python_computes():
    programs = {
        **code_counts.ORDINARY,
        **{n: Function((c,)).program() for n, c in _choose_steps().items() if STEPS[n].before == "list"},
    }
    lists, counted = ([3, -2, 4, 3], [], [1, 0]), 0
    for kind, program in programs.items():
        names = {"__name__": "program"}
        try:
            results = Interpreter(10**6).run(ast.parse(program), "solve", [([list(one)], {}) for one in lists])
        except Uncounted:
            continue
        exec(program, names)
        for one, (word, value) in zip(lists, results):
            assert word == "returned" and encode(value) == encode(names["solve"](list(one))), kind
        counted += 1
    assert counted >= 60


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("def solve(x):\n    return y", "NameError"),
        ("def solve(x):\n    z = z + 1", "UnboundLocalError"),
        ("def solve(x):\n    a, b = x", "ValueError"),
        ("def solve(x):\n    a, *b, c = []", "ValueError"),
        ("def solve(x, y):\n    return x", "TypeError"),
        ("def f(a):\n    return a\ndef solve(x):\n    return f(1, a=2)", "TypeError"),
        ("def f(a, /):\n    return a\ndef solve(x):\n    return f(a=2)", "TypeError"),
        ("def f(*, a):\n    return a\ndef solve(x):\n    return f()", "TypeError"),
        ("def solve(x):\n    assert not x, 1", "AssertionError"),
        ("def solve(x):\n    try:\n        x[9]\n    except KeyError:\n        return 1", "IndexError"),
        ("def solve(x):\n    try:\n        1 / 0\n    finally:\n        x.clear()", "ZeroDivisionError"),
        ("def solve(x):\n    return solve(x)", "RecursionError"),
        ("def solve(x):\n    for x[0] in [1]:\n        del x[0]\n    return x[5]", "IndexError"),
    ],
)
def test_the_interpreter_raises_what_python_raises(program, error):
    names = {"__name__": "program"}
    exec(program, names)
    with pytest.raises(Exception) as raised:
        names["solve"]([1])
    assert type(raised.value).__name__ == error
    assert Interpreter(10**6).run(ast.parse(program), "solve", [([[1]], {})]) == [["raised", error]]


@pytest.mark.parametrize(
    ("expression", "operations"),
    # a statement and its expressions count one each, the parts of a loop once a turn
    [("x", 2), ("x + x", 4), ("[v for v in x]", 6), ("sum(x)", 4), ("x[0]", 4), ("len(x) < 9 and x", 8)],
)
def test_operations_by_hand(expression, operations):
    counter = Interpreter(100)
    counter.run(ast.parse(f"def solve(x):\n    return {expression}"), "solve", [([[1, 2, 3]], {})])
    assert counter.operations == operations + 1  # the definition


def test_a_program_leaves_nothing_for_the_next_one(prompt):
    before = reply(prompt, "import collections\ncollections.Counter.most_common = None\n" + SUM)
    after = reply(prompt, "import collections\nassert collections.Counter('a').most_common()\n" + SUM)
    assert [score["exact"] for score in TASK.scores([before, after])] == [1, 1]


def test_a_program_runs_once_on_the_same_calls_unless_its_outcome_depends_on_the_load():
    calls = [([encode([1, 2])], {})]
    jobs = [(SUM, "solve", calls), (SUM, "solve", [([encode([3])], {})]), (SUM, "solve", calls)]
    first, other, again = run_candidates(jobs, count=True)
    assert first is again and (first.results, other.results) == ([["returned", ["int", "3"], 0]],) * 2
    assert run_candidates(jobs[:1], count=True)[0] is first
    endless = [("def solve(x):\n    while True: pass", "solve", calls)]
    once, twice = (run_candidates(endless, count=True)[0] for _ in range(2))
    assert once.word == twice.word == "timed_out" and once is not twice


def test_what_is_printed_is_no_result(prompt):
    assert TASK.score(reply(prompt, "print('loaded')\ndef solve(x):\n    print(x)\n    return sum(x)"))["exact"] == 1


def test_an_input_can_be_changed_without_harm(prompt):
    assert TASK.score(reply(prompt, "def solve(x):\n    s = 0\n    while x:\n        s += x.pop()\n    return s"))[
        "exact"
    ]


def _choose_steps():
    return {name: Chosen(name, step.numbers[0] if step.numbers else 0) for name, step in STEPS.items()}


def test_every_step_by_hand():
    chosen = _choose_steps()
    inputs = {"list": [3, -2, 4, 3], "text": "big Anna", "number": 12}
    got = {n: run_trusted(Function((c,)).program(), [inputs[STEPS[n].before]])[0] for n, c in chosen.items()}
    assert got == {
        **{"even": [-2, 4], "odd": [3, 3], "above": [3, 4, 3], "below": [-2], "add": [4, -1, 5, 4]},
        **{"times": [6, -4, 8, 6], "square": [9, 4, 16, 9], "negate": [-3, 2, -4, -3], "reverse": [3, 4, -2, 3]},
        **{"sort": [-2, 3, 3, 4], "descend": [4, 3, 3, -2], "unique": [3, -2, 4], "head": [3], "drop": [-2, 4, 3]},
        **{"alternate": [3, 4], "running": [3, 1, 5, 8], "sum": 8, "largest": 4, "smallest": -2, "length": 4},
        **{"ascending": False, "join": "3,-2,4,3", "upper": "BIG ANNA", "backwards": "annA gib"},
        **{"twice": "bbiigg  AAnnnnaa", "vowels": "bg nn", "words": "Anna big", "capitals": "Big Anna"},
        **{"spaces": "big-Anna", "start": "bi", "alphabet": " Aabginn", "lengths": [3, 4], "count": 3},
        **{"palindrome": False, "size": 8, "digits": [1, 2], "divisors": [1, 2, 3, 4, 6, 12]},
        **{"upto": list(range(1, 13)), "binary": "1100", "plus": 13, "modulo": 0, "prime": False, "fibonacci": 144},
    }
    assert {name for name, value in got.items() if isinstance(value, bool)} == {
        name for name, step in STEPS.items() if step.after == "truth"
    }


def test_demonstrations_pass_and_examples_are_shown():
    task = Code(extract={"code": {"language": "python"}}, steps=(1, 4))
    episodes = [reply(task[i], task.demonstrate(i)) for i in range(20)]
    for scores, episode in zip(task.scores(episodes), episodes):
        assert scores == {"format": 1, "exact": 1, "tests": 1, "parses": 1, "runs": 1, "speed": 1}
        assert episode.prompt.messages[0]["content"].count("solve(") == 1 + task.examples


def test_no_function_of_the_held_out_split_is_trained_on():
    keys = [{TASK.split_key(TASK.on(s).problem(i)) for i in range(300)} for s in ("train", "held_out")]
    assert not keys[0] & keys[1]


def test_programs_to_repair_fail_and_their_repair_passes():
    task = Code(repair=True)
    shown = [task.problem(i).broken for i in range(20)]
    assert all(broken in task[i].messages[0]["content"] for i, broken in enumerate(shown))
    broken = task.scores([reply(task[i], program) for i, program in enumerate(shown)])
    assert {score["exact"] for score in broken} == {0}
    assert {task.score(reply(task[i], task.demonstrate(i)))["exact"] for i in range(5)} == {1}


@pytest.mark.parametrize(
    ("parses", "runs", "tests", "reward"),
    [(0, 0, 0, -1), (1, 0, 0, -0.6), (1, 0, 0.5, -0.6), (1, 1, 0, -0.3), (1, 1, 0.5, 0.35), (1, 1, 1, 1)],
)
def test_unit_test_feedback_by_hand(parses, runs, tests, reward):
    assert unit_test_feedback(parses, runs, tests) == pytest.approx(reward)


@pytest.mark.parametrize("options", [{"steps": (0, 1)}, {"steps": (3, 2)}, {"tests": 1}, {"examples": -1}])
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="code"):
        Code(**options)
