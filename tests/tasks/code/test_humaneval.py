"""Rows of HumanEval: tests and candidates in separate processes."""

import json
from dataclasses import replace

import pytest

from tasks.code import HumanEval
from tasks.code.humaneval import Row
from tests.tasks.replies import reply

ROWS = [
    {
        "task_id": "Own/0",
        "prompt": 'import math\n\n\ndef area(r: float) -> float:\n    """Area of a circle."""\n',
        "canonical_solution": "    return math.pi * r * r\n",
        "test": "def check(candidate):\n    assert abs(candidate(1) - 3.14159) < 1e-4\n    assert candidate(0) == 0.0\n"
        "    assert candidate(2.0) > 12\n",
        "entry_point": "area",
    },
    {
        "task_id": "Own/1",
        "prompt": 'def flip(s):\n    return s[::-1]\n\n\ndef unflip(s):\n    """Undo flip."""\n',
        "canonical_solution": "    return s[::-1]\n",
        "test": "from random import randint\nMETADATA = {}\n\ndef check(candidate):\n    for _ in range(20):\n"
        "        s = chr(randint(97, 122)) * 3 + 'x'\n        assert candidate(flip(s)) == s, 'wrong'\n",
        "entry_point": "unflip",
    },
    {
        "task_id": "Own/2",
        "prompt": 'def pairs(n):\n    """The pairs (i, i * i) below n; a ValueError below 0."""\n',
        "canonical_solution": "    if n < 0:\n        raise ValueError\n    return {i: (i, i * i) for i in range(n)}",
        "test": "def check(candidate):\n    assert candidate(2) == {0: (0, 0), 1: (1, 1)}\n    try:\n"
        "        candidate(-1)\n    except ValueError:\n        pass\n    else:\n        assert False\n",
        "entry_point": "pairs",
    },
]


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "HumanEval.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    both = [HumanEval(path=str(path), split=split, held_out_fraction=0.5) for split in ("train", "held_out")]
    assert sorted(len(one.rows) for one in both) == [1, 2]
    return both


@pytest.fixture
def prompts(task):
    found = {p.info["row"].entry_point: p for one in task for p in (one[i] for i in range(len(one)))}
    return [found[row["entry_point"]] for row in ROWS]


def score(task, prompt, text):
    episode = reply(prompt, text)
    return task[0].score(episode), episode.info["outcome"]


def test_canonical_solutions_pass_as_continuations_and_as_whole_programs(task, prompts):
    whole = [prompt.info["row"].prompt + prompt.info["row"].solution for prompt in prompts]
    for one in task:
        for index in range(len(one)):
            assert one.score(reply(one[index], one.demonstrate(index)))["exact"] == 1
    episodes = [reply(prompt, text) for prompt, text in zip(prompts, whole)]
    assert task[0].scores(episodes) == [{"exact": 1, "tests": 1, "parses": 1, "runs": 1}] * 3


@pytest.mark.parametrize("extract", [{"code": {"language": "python"}}, {"tags": {"tag": "answer"}}])
def test_an_extracted_continuation_passes_like_a_whole_function(task, prompts, extract):
    extracting = replace(task[0], extract=extract)
    rows = [prompt.info["row"] for prompt in prompts]
    texts = [extracting.write_answer(answer) for row in rows for answer in (row.solution, row.prompt + row.solution)]
    doubled = [prompt for prompt in prompts for _ in range(2)]
    scores = extracting.scores([reply(prompt, text) for prompt, text in zip(doubled, texts)])
    assert scores == [{"format": 1, "exact": 1, "tests": 1, "parses": 1, "runs": 1}] * 6


def test_code_blocks_of_chat_models_and_continuations_that_were_cut_off_pass(task, prompts):
    """A chat model writes the function in a block; another one goes on until it is cut off in a further function."""
    for prompt in prompts:
        row = prompt.info["row"]
        whole = row.prompt + row.solution
        for text in (f"Here it is:\n\n```python\n{whole}\n```\n\nIt works.", f"```\n{row.solution.rstrip()}\n```"):
            assert score(task, prompt, text)[0]["exact"] == 1
        episode = reply(prompt, row.solution.rstrip() + "\n\n\ndef another(x):\n    return (x")
        assert task[0].score(episode)["exact"] == 0
        assert task[0].score(replace(episode, ended="length"))["exact"] == 1


@pytest.mark.parametrize(
    ("prompt", "solution"),
    [
        ("def f(x):\n    '''Return x.'''\n", "    if x:\n        return x\n    return x\n"),
        ("def f(x):\n\t'''Return x.'''\n", "\treturn x\n"),
        ("def f(x):\n    '''Return x.'''", "\n\n    return x"),
        ("def f(x):\n    ", "return x"),
    ],
)
def test_a_continuation_gets_back_the_indentation_of_its_first_line(prompt, solution):
    row = Row(prompt, "", "f", solution, "")
    assert row.join(solution) == prompt + solution
    assert row.join(solution.strip()) == prompt + solution.rstrip()
    assert row.join("def f(x):\n    return 1") == "\ndef f(x):\n    return 1"


def test_partial_passes_and_errors(task, prompts):
    assert score(task, prompts[0], "    return 3.14159 * r\n") == (
        {"exact": 0, "tests": pytest.approx(2 / 3), "parses": 1, "runs": 1},
        "failed",
    )
    # an error that the test expects is a result, and runs tells that a call failed
    no_error = score(task, prompts[2], "    return {i: (i, i * i) for i in range(n)}\n")
    assert no_error[0]["exact"] == 0 and no_error[0]["tests"] == 1
    assert score(task, prompts[1], "    return s\n")[0]["tests"] == 0


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("    return r r", "syntax_error"),
        ("    raise SystemExit(0)", "exited"),
        ("    import os; os._exit(0)", "exited"),
        ("    import os; os.fork()", "raised"),
        ("    print(3.14159)", "failed"),
        ("    open('/etc/passwd').read()", "raised"),
        ("    return area(r)", "raised"),
        ("    while True: pass", "timed_out"),
        ("    print('x' * 10**7)\n    import os; os.write(1, b'x' * 10**6)", "too_long"),
        ("    import os; os.write(1, b'[1, 2]')", "unreadable"),
        ("    pass\nclass Same(float):\n    __eq__ = __lt__ = __gt__ = lambda a, b: True\narea = Same", "raised"),
        ("    pass\nimport builtins\nbuiltins.abs = lambda v: 0\narea = lambda r: 99.0", "failed"),
        ("    pass\ndef check(candidate):\n    return True", "failed"),
        ("    import json; json.dumps = lambda v: 'x'\n    return 0", "failed"),
    ],
)
def test_hostile_programs_pass_no_test(task, prompts, text, word):
    scores, outcome = score(task, prompts[0], text)
    assert (scores["exact"], outcome) == (0, word)


@pytest.mark.parametrize(
    ("solution", "test"),
    [
        ("    x.sort()\n", "    x = [3, 1, 2]\n    candidate(x)\n    assert x == [1, 2, 3]\n"),
        ("    x.sort()\n    return x\n", "    x = [3, 1, 2]\n    assert candidate(x) is x\n"),
        ("    return (v for v in x)\n", "    assert list(candidate([1])) == [1]\n"),
        ("    x.pop()\n    return x\n", "    x = [1, 2]\n    candidate(x)\n    assert candidate(x) == []\n"),
    ],
)
def test_rows_whose_solution_would_score_0_are_refused_with_their_line(tmp_path, solution, test):
    path = tmp_path / "changes.jsonl"
    row = {
        "prompt": "def f(x):\n    '''Do something with x.'''\n",
        "canonical_solution": solution,
        "test": f"def check(candidate):\n{test}",
        "entry_point": "f",
    }
    path.write_text(json.dumps(row) + "\n")
    task = HumanEval(path=str(path), split=HumanEval(path=str(path)).split_of(row))
    with pytest.raises(ValueError, match=r"changes\.jsonl:1.*'f' does not pass its own test on what it returned"):
        task.score(reply(task[0], solution))


def test_rows_are_refused_with_their_line(task, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({**ROWS[0], "canonical_solution": "    return 0\n"}) + "\n")
    bad = HumanEval(path=str(path), split=HumanEval(path=str(path)).split_of(ROWS[0]))
    with pytest.raises(ValueError, match=r"bad\.jsonl:1.*does not pass its own test"):
        bad.score(reply(bad[0], "    return 0"))
    path.write_text(json.dumps({"prompt": ROWS[0]["prompt"]}) + "\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl:1: no column 'test'"):
        HumanEval(path=str(path), split=bad.split)[0]
