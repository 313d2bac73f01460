"""Rows as people have them: each is used, or refused with its row and column named. Nothing is dropped."""

import base64
import datetime
import io
import json
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from mmrl.core.types import AssistantMessage
from tasks.dataset import DatasetTask
from tasks.preferences.data import BadPair, pair

USER = {"role": "user", "content": "q"}
CALL = {"type": "function", "id": "c1", "function": {"name": "f", "arguments": '{"x": null, "y": 1}'}}
READ = {"type": "function", "id": "c1", "function": {"name": "f", "arguments": {"x": None, "y": 1}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["x"]}}}
PICTURE = np.zeros((4, 6, 3), np.uint8)


def said(content: Any = "a", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def png() -> bytes:
    stored = io.BytesIO()
    Image.fromarray(PICTURE).save(stored, "PNG")
    return stored.getvalue()


def talk(*messages: Any, **columns: Any) -> dict[str, Any]:
    return {"messages": list(messages), **columns}


URL = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
IMAGE = {"type": "image"}

# name, row, options, what must come of it: a text of the refusal, or fields of the prompt
ROWS: list[tuple[str, dict[str, Any], dict[str, Any], str | dict[str, Any]]] = [
    # messages of OpenAI's and Hugging Face's exports
    ("content as parts", talk(USER, said([{"type": "text", "text": "4"}])), {}, {"answer": "4"}),
    ("name of a speaker", talk({**USER, "name": "Ann"}, said()), {}, {"messages": ({**USER, "name": "Ann"},)}),
    (
        "a call and its result",
        talk(USER, said(None, tool_calls=[CALL]), {"role": "tool", "content": "r", "tool_call_id": "c1"}, said()),
        {},
        {"messages": (USER, said("", tool_calls=[READ]), {"role": "tool", "content": "r", "tool_call_id": "c1"})},
    ),
    ("calls without a frame", talk(USER, said("", tool_calls=[{"name": "f", "arguments": {}}])), {}, {"answer": None}),
    (
        "arguments that are no JSON",
        talk(USER, said("", tool_calls=[{"name": "f", "arguments": "{x"}])),
        {},
        "'messages'.*f",
    ),
    ("a call without a name", talk(USER, said("", tool_calls=[{"id": "1"}])), {}, "'messages' has the call"),
    ("calls of the user", talk({**USER, "tool_calls": [CALL]}, said()), {}, "'user' with 'tool_calls'"),
    ("calls that are a text", talk(USER, said(tool_calls="f()")), {}, "'messages' has 'tool_calls' that are"),
    ("function_call of old", talk(USER, said("", function_call={"name": "f"})), {}, "'function_call'.*tool_calls"),
    ("a refusal", talk(USER, said(None, refusal="no")), {}, "'messages'.*'refusal'"),
    ("audio of a message", talk(USER, said(audio={"id": "x"})), {}, "'messages'.*'audio'.*hears"),
    ("weight of a message", talk(USER, said(weight=0)), {}, "'messages'.*'weight'"),
    ("time of a message", talk({**USER, "timestamp": 3}, said()), {}, r"'timestamp'.*task\.ignored=\[timestamp\]"),
    ("time that is ignored", talk({**USER, "timestamp": 3}, said()), {"ignored": ["timestamp"]}, {"messages": (USER,)}),
    ("entries without values", talk(USER, said(refusal=None, annotations=[], audio=None)), {}, {"answer": "a"}),
    ("reasoning", talk(USER, said("4", reasoning_content="2+2")), {}, {"answer": "4", "target": "reasoning_content"}),
    ("reasoning as parts", talk(USER, said("4", reasoning_content=["2"])), {}, "'reasoning_content' is a list"),
    ("only reasoning", talk(USER, said("", reasoning_content="2+2")), {}, "'messages' is empty"),
    ("developer", talk({"role": "developer", "content": "x"}, USER, said()), {}, "'messages'.*one of system, user"),
    ("function's result", talk(USER, {"role": "function", "content": "x"}, said()), {}, "'messages'.*no chat message"),
    (
        "ShareGPT",
        talk({"from": "human", "value": "q"}, said()),
        {},
        "'messages'.*'from' and 'value' are another format",
    ),
    ("content of none", talk({"role": "user", "content": None}, said()), {}, "'messages' has a message whose content"),
    ("ends with the user", talk(USER), {}, {"answer": None, "messages": (USER,)}),
    ("input_audio part", talk({"role": "user", "content": [{"type": "input_audio"}]}, said()), {}, "'messages'.*part"),
    ("messages as JSON text", {"messages": json.dumps([USER, said()])}, {}, {"answer": "a", "messages": (USER,)}),
    ("messages as a text", {"messages": "q"}, {}, "'messages' must be a list of messages, got 'q'"),
    # tools of a row
    ("tools", talk(USER, said(), tools=[TOOL]), {}, {"tools": (TOOL,)}),
    ("tools as JSON text", talk(USER, said(), tools=json.dumps([TOOL])), {}, {"tools": (TOOL,)}),
    ("tools without a frame", talk(USER, said(), tools=[TOOL["function"]]), {}, {"tools": (TOOL,)}),
    ("tools of another name", talk(USER, said(), functions=[TOOL]), {"tools": "functions"}, {"tools": (TOOL,)}),
    ("no tools", talk(USER, said(), tools="[]"), {}, {"tools": ()}),
    ("tools as words", talk(USER, said(), tools=["search"]), {}, "'tools' has the tool 'search'"),
    ("tools that are no JSON", talk(USER, said(), tools="search"), {}, "'tools'.*JSON"),
    # images
    ("mark in a conversation", talk({**USER, "content": "<image>\nq"}, said(), images=["a.png"]), {}, {"parts": "it"}),
    (
        "mark in a question",
        {"question": "<image>\nq", "answer": "a", "p": "a.png"},
        {"images": "p"},
        {"parts": "it"},
    ),
    (
        "two marks in a question, one image",
        {"question": "<image><image>", "answer": "a", "p": "a.png"},
        {"images": "p"},
        "2 image part",
    ),
    ("mark in a prompt", {"prompt": "q <image>", "p": "a.png"}, {"format": "prompts", "images": "p"}, {"parts": "ti"}),
    (
        "two marks in a prompt, one image",
        {"prompt": "<image> q <image>", "p": "a.png"},
        {"format": "prompts", "images": "p"},
        "2 image part",
    ),
    ("two marks, one image", talk({**USER, "content": "<image><image>"}, said(), images=["a.png"]), {}, "2 image part"),
    (
        "mark of a model",
        talk({**USER, "content": "<|image_pad|>q"}, said(), images=["a.png"]),
        {},
        r"'<\|image_pad\|>'",
    ),
    ("numbered mark", talk({**USER, "content": "<image 1>q"}, said(), images=["a.png"]), {}, "'<image 1>'"),
    (
        "mark beside a part",
        talk({**USER, "content": [IMAGE, {"type": "text", "text": "<image>"}]}, said(), images=["a.png"]),
        {},
        "2 image part",
    ),
    ("mark without an image", talk({**USER, "content": "the tag <image>"}, said()), {}, {"parts": None}),
    (
        "image as a data URL",
        talk({**USER, "content": [{"type": "image_url", "image_url": {"url": URL}}]}, said()),
        {},
        {"parts": "i"},
    ),
    (
        "image on the web",
        talk({**USER, "content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}]}, said()),
        {},
        "'messages' has the image 'http://a/b.png'",
    ),
    (
        "bytes and path",
        {"question": "q", "answer": "a", "p": {"bytes": None, "path": "a.png"}},
        {"images": "p"},
        {"parts": "it"},
    ),
    (
        "two columns",
        {"question": "q", "answer": "a", "p": "a.png", "r": "b.png"},
        {"images": ["p", "r"]},
        {"parts": "iit"},
    ),
    (
        "one of two columns is empty",
        {"question": "q", "answer": "a", "p": "a.png", "r": ""},
        {"images": ["p", "r"]},
        "'r' is empty",
    ),
    ("path outside", {"question": "q", "answer": "a", "p": "../a.png"}, {"images": "p"}, "'p' names"),
    (
        "a column that is not named",
        {"question": "q", "answer": "a", "image": "a.png"},
        {},
        r"'image' .*task\.images=image",
    ),
    ("tools without a name", {"question": "q", "answer": "a", "tools": [TOOL]}, {}, r"'tools' .*task\.tools=tools"),
    (
        "an image for the reward",
        {"question": "q", "answer": "a", "image": "a.png"},
        {"ignored": ["image"]},
        {"parts": None},
    ),
    ("an empty column", {"question": "q", "answer": "a", "image": None}, {}, {"answer": "a"}),
    (
        "a cached part",
        talk({**USER, "content": [{"type": "text", "text": "q", "cache_control": {"type": "x"}}]}, said()),
        {},
        "'messages' has a content part with 'cache_control'",
    ),
    ("arguments of the template", talk(USER, said(), chat_template_kwargs={"x": 1}), {}, r"policy\.template_arguments"),
    # answers
    (
        "answer of many",
        {"question": "q", "answer": {"text": ["a", "b"]}},
        {},
        "'answer' must be text or a finite number",
    ),
    ("nested answer", {"question": "q", "answer": {"text": "a"}}, {"answer": "answer.text"}, {"answer": "a"}),
    ("no answer", {"question": "q", "answer": None}, {}, "'answer' is empty"),
    ("NaN", {"question": "q", "answer": float("nan")}, {}, "'answer' must be text or a finite number, got nan"),
    ("numeric answer", {"question": "q", "answer": 7.50}, {}, {"answer": "7.5"}),
    ("boolean answer", {"question": "q", "answer": True}, {}, "'answer' must be text or a finite number, got True"),
    ("empty prompt", {"question": " ", "answer": "a"}, {}, "'question' is empty"),
    ("numeric prompt", {"question": 5, "answer": "a"}, {}, "'question' must be text"),
]


def fill(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A row of the same columns that is in order."""
    ask = {"role": "user", "content": f"plain {number}"}
    values = {
        "functions": [TOOL],
        "messages": [ask, said(str(number))],
        "question": f"plain {number}",
        "prompt": f"plain {number}",
        "answer": str(number),
    }
    images = {"images": [], "p": "a.png", "r": "b.png"}
    nested = {"answer": {"text": str(number)}} if row.get("answer") == {"text": "a"} else {}
    return {name: {**values, **images, **nested}[name] for name in row if name in {**values, **images}}


def read_third(path: str, **options: Any) -> tuple[Any, DatasetTask]:
    """The prompt of the third row, in either split."""
    for split in ("train", "held_out"):
        task = DatasetTask(path, split=split, **options)
        for index in range(len(task)):
            if task[index].place.endswith((":3", "row 3")):
                return task[index], task
    raise AssertionError("the third row is in no split")


def show(prompt: Any) -> str | None:
    """The parts of the first message: i for an image, t for a text; None for a text alone."""
    content = prompt.messages[0]["content"]
    return None if isinstance(content, str) else "".join(part["type"][0] for part in content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(png())
    return folder


@pytest.mark.parametrize(("name", "row", "options", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_is_used_or_refused(folder, name, row, options, expected):
    path = folder / f"{name.replace(' ', '_')}.jsonl"
    rows = [fill(row, 0), fill(row, 1), row, fill(row, 3)]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    options = {"format": "conversations" if "messages" in row else "questions", **options}
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=rf"\.jsonl:3: .*{expected}"):
            len(DatasetTask(str(path), **options))
        return
    prompt, task = read_third(str(path), **options)
    for field, value in expected.items():
        if field == "parts":
            assert show(prompt) == value and len(prompt.images) == (value or "").count("i")
        elif field == "target":
            target = task.demonstrate(prompt.index)
            assert isinstance(target, AssistantMessage) and value in target.fields
        else:
            assert getattr(prompt, field) == value


def test_there_are_enough_of_them():
    assert len(ROWS) + len(PAIRS) >= 60 and len({row[0] for row in ROWS}) == len(ROWS)


def test_a_call_is_what_is_demonstrated(folder):
    path = folder / "calls.jsonl"
    rows = [talk({"role": "user", "content": str(i)}, said("", tool_calls=[CALL])) for i in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = DatasetTask(str(path), format="conversations")
    assert task.demonstrate(0).fields["tool_calls"] == [READ] and task.score_names(task[0]) == ()


def test_white_space_inside_of_a_question_counts(tmp_path):
    """Programs that differ in indentation alone do something else."""
    code = "for i in range(3):\n    n += 1\n{}print(n)"
    rows = [
        {"question": code.format("    "), "answer": "123"},
        {"question": code.format(""), "answer": "3"},
        {"question": "x  y", "answer": "1"},
        {"question": "x y", "answer": "2"},
        *({"question": f"{i}?", "answer": "a"} for i in range(4)),
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for skip_bad in (False, True):
        task = DatasetTask(str(path), held_out_fraction=0.3, skip_bad=skip_bad)
        parts = [
            {p.messages[0]["content"] for p in (part[i] for i in range(len(part)))}
            for part in (task, task.on("held_out"))
        ]
        assert len(parts[0] | parts[1]) == 8
        for alike in (rows[:2], rows[2:4]):  # held out together
            assert len({row["question"] in parts[0] for row in alike}) == 1
    held = tmp_path / "b.jsonl"
    held.write_text(json.dumps({"question": "x\ty", "answer": "3"}) + "\n")
    assert len(DatasetTask(str(path), str(held))) == 8
    held.write_text(json.dumps({"question": "x\ty", "answer": "1"}) + "\n")
    with pytest.raises(ValueError, match=r"b\.jsonl:1: the same problem is trained on, .*a\.jsonl:3"):
        len(DatasetTask(str(path), str(held)))
    held.write_text(json.dumps({"question": "x  y \n", "answer": "5"}) + "\n")
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"question": "x  y \n", "answer": "5"}]))
    with pytest.raises(ValueError, match=r"a\.jsonl:9: the answer is '5', but .*a\.jsonl:3"):  # at the ends it does not
        len(DatasetTask(str(path)))


def test_columns_of_parquet(tmp_path):
    """Dictionaries, dates, filled structures, and the names of classes."""
    count = 6
    labels = ["no", "yes", "maybe"]
    features = {"answer": {"names": labels, "_type": "ClassLabel"}, "kind": {"names": labels, "_type": "ClassLabel"}}
    table = pyarrow.table(
        {
            "question": pyarrow.array([f"{i}?" for i in range(count)]).dictionary_encode(),
            "answer": pyarrow.array([i % 3 for i in range(count)]),
            "kind": pyarrow.array([-1] * count),
            "day": pyarrow.array([datetime.date(2025, 1, 1 + i) for i in range(count)]),
        }
    )
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        prompt, task = read_third(str(tmp_path / name))
        assert (prompt.answer, prompt.info["kind"], prompt.info["day"]) == ("maybe", None, datetime.date(2025, 1, 3))
        shown = DatasetTask(str(tmp_path / name), template="{question} {answer}")
        assert all(shown[i].messages[0]["content"].endswith(shown[i].answer) for i in range(len(shown)))
        held_out = DatasetTask(str(tmp_path / name), held_out_column="answer", held_out_values=("yes",)).on("held_out")
        assert len(held_out) == 2
    rows = [
        talk(
            {"role": "user", "content": str(i)},
            said("", tool_calls=[{"name": "f", "arguments": {key: i}}]),
            tools=[TOOL],
        )
        for i, key in enumerate("abc")
    ]
    rows[0]["messages"][1]["tool_calls"][0]["arguments"]["deep"] = {"z": 1}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "c.parquet")
    prompt, task = read_third(str(tmp_path / "c.parquet"), format="conversations")
    call = task.demonstrate(prompt.index).fields["tool_calls"][0]
    assert call["function"] == {"name": "f", "arguments": {"c": 2}} and prompt.messages == (
        {"role": "user", "content": "2"},
    )


def test_what_datasets_saved_has_the_names_of_classes(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"question": datasets.Value("string"), "answer": datasets.ClassLabel(names=["no", "yes"])}
    )
    stored = datasets.Dataset.from_dict({"question": list("abcd"), "answer": [0, 1, 1, 0]}, features=features)
    stored.save_to_disk(tmp_path / "saved")
    stored.to_parquet(tmp_path / "a.parquet")
    for path in ("saved", "a.parquet"):
        assert read_third(str(tmp_path / path))[0].answer == "yes"


def test_columns_beside_the_prompt_are_said(tmp_path, caplog):
    """SQuAD's context, Alpaca's input, a system message: whoever leaves them out trains on half of a question."""
    path = tmp_path / "a.jsonl"
    rows = [{"question": f"{i}?", "answer": "a", "context": "c", "input": "", "system": "s"} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(DatasetTask(str(path))) == 2 and "columns system, context are not in the prompt" in caplog.text
    caplog.clear()
    assert len(DatasetTask(str(path), template="{context} {question}", ignored=["system"])) == 2 and not caplog.text


def test_a_csv_file_with_two_columns_of_pictures(folder):
    path = folder / "pictures.csv"
    path.write_text("\ufeffquestion,answer,first,second\r\n" + "".join(f"{i}?,{i},a.png,b.png\r\n" for i in range(4)))
    prompt, _ = read_third(str(path), images=["first", "second"])
    assert show(prompt) == "iit" and "first" not in prompt.info
    with pytest.raises(ValueError, match=r":2: column 'third' is missing"):
        len(DatasetTask(str(path), images=["first", "third"]))


def kto(label: Any, completion: Any = "a", prompt: Any = "q", **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, "label": label, **more}


PAIRS: list[tuple[str, dict[str, Any], str | dict[str, Any]]] = [
    *((f"label {label!r}", kto(label), {"chosen": "a"}) for label in (True, 1, "true", "True", "1")),
    *((f"label {label!r}", kto(label), {"rejected": "a"}) for label in (False, 0, "false", " FALSE", "0")),
    *((f"label {label!r}", kto(label), "'label' is") for label in (None, 2, -1, "good", 0.5, [True])),
    ("completion as a message", kto(True, [said("a")], [USER]), {"chosen": "a"}),
    ("prompt as a text", kto(False, [said("a")]), {"rejected": "a"}),
    ("completion of two turns", kto(True, [said(), USER, said()], [USER]), "completion must be one message"),
    ("completion of the user", kto(True, [USER], [USER]), "completion must be one message"),
    ("no completion", kto(True, ""), "'completion' is empty"),
    ("blank completion", kto(True, " "), "'completion' is empty"),
    ("no prompt", kto(True, prompt=None), "'prompt' must be a text or a list of messages"),
    ("blank prompt", kto(True, prompt=" "), "'prompt' must be one too"),
    (
        "a call",
        kto(True, [said(None, tool_calls=[CALL])], [USER], tools=[TOOL]),
        {"chosen": said("", tool_calls=[READ])},
    ),
    ("unknown entry", kto(True, [said(weight=1)], [USER]), "'completion'.*'weight'"),
    (
        "an image",
        kto(True, prompt=[{"role": "user", "content": [IMAGE]}], completion=[said()]),
        "parts that are no text",
    ),
    ("bad tools", kto(True, tools=[1]), "'tools' has the tool 1"),
    (
        "two calls",
        {"prompt": [USER], "chosen": [said("", tool_calls=[CALL])], "rejected": [said("", tool_calls=[{"name": "g"}])]},
        {"chosen": said("", tool_calls=[READ])},
    ),
    (
        "two reasons",
        {"prompt": [USER], "chosen": [said(thinking="a")], "rejected": [said(thinking="b")]},
        {"rejected": "a"},
    ),
    (
        "one call twice",
        {"prompt": [USER], "chosen": [said("", tool_calls=[CALL])], "rejected": [said("", tool_calls=[CALL])]},
        "the same answer",
    ),
]


@pytest.mark.parametrize(("name", "row", "expected"), PAIRS, ids=[row[0] for row in PAIRS])
def test_a_row_of_preferences_is_used_or_refused(name, row, expected):
    if isinstance(expected, str):
        with pytest.raises(BadPair, match=f"f:3: .*{expected}"):
            pair(row, "f:3")
        return
    answers = pair(row, "f:3").answers
    for field, value in expected.items():
        answer = answers[field]
        assert (answer if isinstance(value, str) else answer.fields) == value
