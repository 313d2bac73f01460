"""Requests of the Berkeley Function-Calling Leaderboard: rows, answers in three forms, and its rules."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from tasks.bfcl import Bfcl
from tasks.bfcl.files import PARTS, find_folder, read_part
from tasks.bfcl.forms import read_calls, write_calls
from tasks.bfcl.task import name_outcome
from tests.tasks.replies import reply

FOLDER = Path(__file__).parent / "rows"
HERE = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance", "live_relevance")


def build(**words):
    return Bfcl(**{"path": str(FOLDER), "parts": HERE, "split": "held_out", "held_out_fraction": 1.0, **words})


@pytest.fixture(scope="module")
def prompts():
    task = build()
    return {prompt.messages[-1]["content"]: prompt for prompt in map(task.__getitem__, range(len(task)))}


def judge(prompts, start, answer):
    """Outcome of an answer to the request that starts so."""
    prompt = next(prompt for text, prompt in prompts.items() if text.startswith(start))
    episode = reply(prompt, answer)
    scores = build().score(episode)
    assert scores["exact"] == float(episode.info["outcome"] == "right")
    return episode.info["outcome"], scores


@pytest.mark.parametrize("style", ["prompt", "template"])
def test_demonstrations_are_right(style):
    task = build(style=style)
    assert len(task) == 14
    for index in range(len(task)):
        prompt = task[index]
        scores = task.score(reply(prompt, task.demonstrate(index)))
        assert scores["exact"] == scores["arguments"] == 1, prompt
        assert scores["called"] == float(prompt.info["task"] != "irrelevance")


def test_a_system_turn_shows_the_functions_or_the_template_does(prompts):
    prompt = prompts["Average 1 and 2."]
    assert prompt.messages[0]["role"] == "system" and '"name": "mean_of"' in prompt.messages[0]["content"]
    assert not prompt.tools and prompt.info["task"] == "multiple" and prompt.place.endswith("multiple.json:3")
    shown = build(style="template", parts=["multiple"])[2]
    assert [message["role"] for message in shown.messages] == ["user"]
    tide, mean = (tool["function"] for tool in shown.tools)
    assert tide["parameters"]["type"] == "object" and tide["parameters"]["properties"]["hour"]["type"] == "number"
    assert mean["parameters"]["properties"]["numbers"] == {
        "type": "array", "items": {"type": "integer"}, "description": "The numbers",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("[ferry.book(start='Oban', people=2)]", "right"),
        ("ferry.book(start='oban', people=2, car=False)", "right"),  # capitals and brackets are free
        ("```python\n[ferry.book(start='Oban', people=1 + 1)]\n```", "right"),
        ('{"name": "ferry.book", "arguments": {"start": "Oban", "people": 2}}', "right"),
        ('<tool_call>\n{"name": "ferry.book", "arguments": {"start": "Oban", "people": 2}}\n</tool_call>', "right"),
        ("[ferry.book(start='Oban', people=2, car=True)]", "wrong_value"),
        ("[ferry.book(start='Oban', people='2')]", "wrong_type"),
        ("[ferry.book(start='Oban', people=2.0)]", "wrong_type"),
        ("[ferry.book(start='Oban', people=True)]", "wrong_type"),
        ("[ferry.book(start='Oban')]", "missing_parameter"),
        ("[ferry.book('Oban', 2)]", "missing_parameter"),  # arguments without a name are not read
        ("[ferry.book(start='Oban', people=2, dog=1)]", "unexpected_parameter"),
        ("[ferry_book(start='Oban', people=2)]", "wrong_function"),
        ("[ferry.book(start='Oban', people=2), ferry.book(start='Oban', people=2)]", "wrong_count"),
        ("I book it: ferry.book(start='Oban', people=2)", "no_call"),
        ("[ferry.book(**{'start': 'Oban', 'people': 2})]", "no_call"),
        ("[ferry.book(start='Oban', people=2", "no_call"),
        ("", "no_call"),
        ("[" * 5000, "no_call"),
        ("[ferry.book(start='Oban', people=" + "9" * 5000 + ")]", "no_call"),
    ],
)
def test_one_call(prompts, answer, outcome):
    assert judge(prompts, "Two people", answer)[0] == outcome


@pytest.mark.parametrize(
    ("start", "answer", "outcome"),
    [
        ("How high", "[tide_height(harbour='Brest  France', hour=6.5)]", "right"),  # spaces and marks are free
        ("How high", "[tide_height(harbour='Brest', hour=6)]", "wrong_value"),
        ("What is the tide", "[tide_height(harbour='Cadiz', hour=12)]", "right"),  # an integer in place of a float
        ("Mix red", "[mix_paint(colours=['Yellow', 'RED'])]", "right"),
        ("Mix red", "[mix_paint(colours=('red', 'yellow'))]", "wrong_type"),
        ("Mix red", "[mix_paint(colours=['red'])]", "wrong_value"),
        ("Mix red", "[mix_paint(colours=[1, 2])]", "wrong_type"),
        ("Mix red", "[mix_paint(colours=['red', 'yellow'], litres=1.0)]", "wrong_value"),  # it was not said
        ("A label", "[print_label(box={'width': 30, 'height': 20}, text='glass')]", "right"),
        ("A label", "[print_label(box={'width': 30}, text='Glass')]", "wrong_value"),
        ("A label", "[print_label(box={'width': 30, 'height': 20, 'depth': 1}, text='Glass')]", "wrong_value"),
        ("A label", "[print_label(box=[30, 20], text='Glass')]", "wrong_type"),
        ("The mean of 1", "[mean_of(numbers=[2, 6]), mean_of(numbers=[1, 3])]", "right"),  # in any order
        ("The mean of 1", "[mean_of(numbers=[2, 6]), mean_of(numbers=[2, 6])]", "no_match"),
        ("The mean of 1", "[mean_of(numbers=[1, 3])]", "wrong_count"),
        ("Who wrote", "Jane Austen.", "right"),
        ("Who wrote", "[]", "right"),
        ("Who wrote", "[tide_height(harbour='Bath', hour=1.0)]", "needless_call"),
        ("Who wrote", "[anything()]", "needless_call"),
        ("I want to go", "[ferry.book(people=4)]", "right"),  # any call
        ("I want to go", "From where?", "no_call"),
    ],
)
def test_values_several_calls_and_none(prompts, start, answer, outcome):
    assert judge(prompts, start, answer)[0] == outcome


def test_share_of_the_arguments_by_hand(prompts):
    """Name, start and people are needed: 3 parts. A wrong value leaves 2 of 3, and one that is not asked for 2 of 4."""
    share = lambda answer: judge(prompts, "Two people", answer)[1]["arguments"]  # noqa: E731
    assert share("[ferry.book(start='Oban', people=3)]") == pytest.approx(2 / 3)
    assert share("[ferry.book(start='Oban', people=3, dog=1)]") == pytest.approx(2 / 4)
    assert share("[ferry.book()]") == pytest.approx(1 / 3)
    assert share("[boat()]") == 0  # of the 3 parts none, and a call too many
    assert share("[ferry.book(start='Oban', people=2), boat()]") == pytest.approx(3 / 4)
    assert share("") == 0
    # two calls of a name and a list: the second one is missing
    assert judge(prompts, "The mean of 1", "[mean_of(numbers=[2, 6])]")[1]["arguments"] == pytest.approx(2 / 4)


def test_values_that_are_not_literals_are_their_text():
    assert read_calls("[f(a=x, b=g(1), c=h(k=2), d=rows[0], e=-3, f=None, g=..., h={'a': [1, (2,)]})]") == [
        (
            "f",
            {
                "a": "x", "b": "g(1)", "c": {"h": {"k": 2}}, "d": "rows[0]", "e": -3,
                "f": None, "g": "...", "h": {"a": [1, (2,)]},
            },
        )
    ]  # fmt: skip
    assert read_calls("[f(a=2 * 3.5)]") == [("f", {"a": 7.0})]
    assert read_calls("[f(a=1, a=2)]") == [("f", {"a": 2})]  # as the leaderboard
    for answer in ("[f(a=1 / 0)]", "[f(a=2 * 'x')]", "[f(a=lambda: 1)]", "[__import__('os')()]", "f"):
        assert read_calls(answer) == [], answer


@pytest.mark.parametrize("style", ["prompt", "template"])
def test_written_calls_are_read_again(style):
    calls = [("a.b", {"text": 'it\'s "so"', "list": [1, 2.5, None], "dict": {"k": True}}), ("c", {})]
    assert read_calls(write_calls(calls, style)) == calls


def test_splits_hold_out_functions():
    train, held_out = (build(split=split, held_out_fraction=0.5) for split in ("train", "held_out"))
    assert len(train) and len(held_out) and len(train) + len(held_out) == 14
    names = [{request.answers[0][0] for request in task.requests if request.answers} for task in (train, held_out)]
    assert not names[0] & names[1]
    assert train.on("held_out").requests == held_out.requests
    with pytest.raises(IndexError):
        held_out[len(held_out)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"parts": ["simple"]}, "unknown parts"),
        ({"parts": []}, "one or more"),
        ({"parts": ["multiple", "multiple"]}, "each once"),
        ({"style": "xml"}, "style must be"),
        ({"held_out_fraction": 0}, "held_out_fraction"),
        ({"split": "test"}, "splits"),
    ],
)
def test_bad_arguments_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        build(**words)


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FOLDER, tmp_path / "bfcl"))


def change(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("BFCL_v4_multiple.json", '"question"', '"prompt"', r"multiple.json:1: is no row.*question"),
        ("BFCL_v4_multiple.json", "{", "[", r"multiple.json:1: is not JSON"),
        (
            "BFCL_v4_multiple.json",
            '"float"',
            '"complex"',
            r"multiple.json:1: parameters of unknown types \['complex'\]",
        ),
        ("possible_answer/BFCL_v4_multiple.json", '"tide_height"', '"tide"', r"functions that the row lacks.*tide"),
        ("possible_answer/BFCL_v4_multiple.json", "multiple_0", "multiple_9", "stands beside the right calls"),
    ],
)
def test_rows_of_another_form_are_refused_by_file_and_line(folder, file, old, new, message):
    change(folder / file, old, new)
    with pytest.raises(ValueError, match=message):
        len(build(path=str(folder)))


def test_files_that_are_missing_are_named(folder, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"BFCL_v4_live_simple\.json"):
        len(build(parts=["live_simple"]))
    with pytest.raises(FileNotFoundError, match=r"task\.path"):
        len(build(path=str(folder / "none")))
    rows = (folder / "possible_answer" / "BFCL_v4_multiple.json").read_text().splitlines()
    (folder / "possible_answer" / "BFCL_v4_multiple.json").write_text("\n".join(rows[:2]))
    with pytest.raises(ValueError, match="has 2 rows"):
        len(build(path=str(folder)))
    monkeypatch.setattr("tasks.bfcl.files.PACKAGE", "no_such_package")
    with pytest.raises(FileNotFoundError, match="make bfcl"):
        len(build(path=None))


@pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="`make bfcl` installs the rows")
def test_the_leaderboard_s_own_rows():
    """3,491 requests; four ask for a value that their functions do not have."""
    folder = find_folder(None)
    requests = [request for part in PARTS for request in read_part(folder, part)]
    assert len(requests) == 3491
    task = Bfcl(parts=PARTS, held_out_fraction=1, split="held_out")
    wrong = [
        i for i, request in enumerate(requests) if name_outcome(read_calls(task.demonstrate(i)), request) != "right"
    ]
    assert len(wrong) == 4 and all(requests[i].part.startswith("live") for i in wrong)
    json.dumps([task[i].messages for i in range(0, len(task), 100)])
