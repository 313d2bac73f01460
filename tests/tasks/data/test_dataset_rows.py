"""Rows of data sets whose answers, messages or images would be read as something else without a message."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from tasks.dataset import DatasetTask
from tests.tasks.replies import reply


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def conversation(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def test_the_answer_in_the_last_message_of_a_conversation(tmp_path):
    rows = [conversation(f"{i}?", f"We add.\n#### {i}") for i in range(4)]
    path = write(tmp_path / "a.jsonl", *rows)
    task = DatasetTask(path, format="conversations", answer_extract="marker", extract="last_number")
    assert task[0].messages[0]["content"] == f"{task[0].answer}?"
    assert task.score(reply(task[0], task.demonstrate(0))) == {"format": 1.0, "exact": 1.0}
    write(tmp_path / "a.jsonl", *rows, conversation("4?", "I do not know."))
    with pytest.raises(ValueError, match=r"a\.jsonl:5: column 'messages' holds no answer .*answer_extract"):
        len(DatasetTask(path, format="conversations", answer_extract="marker"))


@pytest.mark.parametrize("content", ["", " \n"])
def test_a_conversation_without_a_last_message_is_refused(tmp_path, content):
    """A reply without text would be right."""
    path = write(tmp_path / "a.jsonl", conversation("1?", "a"), conversation("2?", "b"), conversation("3?", content))
    with pytest.raises(ValueError, match=r"a\.jsonl:3: the assistant's last message .* is empty"):
        len(DatasetTask(path, format="conversations"))
    task = DatasetTask(path, format="conversations", held_out_fraction=0.5, skip_bad=True)
    assert len(task) + len(task.on("held_out")) == 2


def test_messages_without_a_prompt_are_refused(tmp_path):
    rows = [{"prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": x}]} for x in ("1?", "2?")]
    for content in ("", [], [{"type": "text", "text": " "}]):
        rows[1]["prompt"][1]["content"] = content
        path = write(tmp_path / "a.jsonl", *({**row, "solution": 1} for row in rows))
        with pytest.raises(ValueError, match=r"a\.jsonl:2: the user's messages in column 'prompt' are empty"):
            len(DatasetTask(path, format="trl"))
    Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(tmp_path / "a.png")
    write(tmp_path / "a.jsonl", *({**row, "solution": 1, "images": ["a.png"]} for row in rows))
    assert len(DatasetTask(path, format="trl")) == 1


def test_messages_with_tool_calls_are_read_with_them(tmp_path):
    """Without them the policy would read the result of a call that it does not see."""
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    row = conversation("Rain?", "Yes.")
    result = {"role": "tool", "content": "rain", "tool_calls": None}  # as parquet fills the columns of a message
    row["messages"][1:1] = [call, result]
    held_out = write(tmp_path / "b.jsonl", conversation("1?", "a"))
    task = DatasetTask(write(tmp_path / "a.jsonl", row), held_out, format="conversations")
    read = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    assert [message.get("tool_calls") for message in task[0].messages] == [None, read, None]
    assert task[0].answer == "Yes."


def test_images_of_messages_and_of_the_row_stay_in_order(tmp_path):
    for shade in (10, 200):
        Image.fromarray(np.full((4, 6, 3), shade, np.uint8)).save(tmp_path / f"{shade}.png")
    inside, of_row = {"type": "image", "image": "10.png"}, {"type": "image"}
    for parts, expected in (([inside, of_row], [10, 200]), ([of_row, inside], [200, 10])):
        rows = [
            {"prompt": [{"role": "user", "content": [*parts, {"type": "text", "text": str(i)}]}], "solution": "a"}
            for i in range(3)
        ]
        path = write(tmp_path / "a.jsonl", *({**row, "images": ["200.png"]} for row in rows))
        assert [image[0, 0, 0] for image in DatasetTask(path, format="trl")[0].images] == expected


@pytest.mark.parametrize("kind", [pyarrow.float16(), pyarrow.float32(), pyarrow.float64()])
def test_short_floats_are_the_numbers_that_were_written(tmp_path, kind):
    answers = pyarrow.array(np.array([0.1, 2.5, -0.3, 7], kind.to_pandas_dtype()))
    lists = pyarrow.ListArray.from_arrays([0, 1, 2, 3, 4], answers)
    nested = pyarrow.StructArray.from_arrays([answers, lists], ["a", "b"])
    table = pyarrow.table({"question": ["0", "1", "2", "3"], "answer": answers, "more": nested})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    expected = [0.1, 2.5, -0.3, 7.0]
    for name in ("a.parquet", "a.arrow"):
        whole = DatasetTask(str(tmp_path / name))
        for task in (whole, whole.on("held_out")):
            for prompt in (task[i] for i in range(len(task))):
                number = expected[int(prompt.messages[0]["content"])]
                assert task.score(reply(prompt, f"{number:g}"))["exact"] == 1
                assert prompt.info["more"] == {"a": number, "b": [number]}


def test_an_animation_in_a_list_of_videos_is_no_frame(tmp_path):
    """Its first frame would be shown for all."""
    first, *more = (Image.fromarray(np.full((32, 32, 3), shade, np.uint8)) for shade in (0, 60, 120))
    first.save(tmp_path / "a.gif", save_all=True, append_images=more)
    more[0].save(tmp_path / "b.gif")
    path = write(tmp_path / "a.jsonl", *({"question": str(i), "answer": "x", "v": ["a.gif"]} for i in range(3)))
    with pytest.raises(ValueError, match=r"a\.gif cannot be read as a video"):
        len(DatasetTask(path, videos="v"))
    write(tmp_path / "a.jsonl", *({"question": str(i), "answer": "x", "v": ["b.gif", "b.gif"]} for i in range(3)))
    assert [image[0, 0, 0] for image in DatasetTask(path, videos="v", frames=2)[0].images] == [60, 60]


def test_a_value_of_the_split_that_no_row_has_is_refused(tmp_path):
    """Rows of the split that was meant would be trained on."""
    rows = [{"question": f"{i}?", "answer": "a", "split": ("train", "dev", "test")[i % 3]} for i in range(9)]
    path = write(tmp_path / "a.jsonl", *rows)
    task = DatasetTask(path, held_out_column="split", held_out_values=("dev", "test"))
    assert len(task) == 3 and len(task.on("held_out")) == 6
    with pytest.raises(
        ValueError, match=r"'split' has \['tset'\] in no row, it has \[.*dev.*test.*train.*held_out_values"
    ):
        len(DatasetTask(path, held_out_column="split", held_out_values=("dev", "tset")))


def test_options_of_splits_that_would_change_nothing_are_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", *[{"question": f"{i}?", "answer": "a"} for i in range(9)])
    with pytest.raises(
        ValueError, match=r"held_out_values=\['dev'\] are values of a column; set task\.held_out_column"
    ):
        DatasetTask(path, held_out_values=("dev",))
    for option in ({"subset": "main"}, {"train_split": "dev"}, {"held_out_split": "test"}):
        with pytest.raises(ValueError, match=rf"a\.jsonl is one file, and task\.{next(iter(option))}="):
            len(DatasetTask(path, **option))
