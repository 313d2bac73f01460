import json

import pytest

from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.stages import FilterStage
from tasks.preferences.data import BadPair, pair
from tasks.preferences.task import Preferences

USER = {"role": "user", "content": "2+2="}


def said(text):
    return {"role": "assistant", "content": text}


def test_the_formats_say_the_same():
    plain = pair({"prompt": "2+2=", "chosen": "4", "rejected": "5"}, "f:1")
    chat = pair({"prompt": [USER], "chosen": [said("4")], "rejected": [said("5")]}, "f:1")
    whole = pair({"chosen": [USER, said("4")], "rejected": [USER, said("5")]}, "f:1")
    mixed = pair({"prompt": [USER], "chosen": "4", "rejected": "5"}, "f:1")
    assert plain == chat == whole == mixed
    assert (plain.messages, plain.chosen, plain.rejected) == ((USER,), "4", "5")


@pytest.mark.parametrize(
    "record, message",
    [
        (
            {"prompt": "2+2=", "chosen": "4"},
            r"f:7: \['rejected'\] missing or empty, .* has \['chosen', 'prompt'\]",
        ),
        ({"prompt": "2+2=", "chosen": "4", "rejected": ""}, r"\['rejected'\] missing or empty"),
        ({"prompt": "2+2=", "chosen": "4", "rejected": " 4\n"}, "the same answer '4'; nothing is preferred"),
        ({"chosen": "4", "rejected": "5"}, "'prompt' must be one too, got None"),
        ({"prompt": "2+2=", "chosen": "4", "rejected": [said("5")]}, "chosen is a str and rejected a list"),
        (
            {"prompt": "2+2=", "chosen": [{"from": "gpt", "value": "4"}], "rejected": [said("5")]},
            "is no chat message: it needs 'role', .*'from' and 'value' are another format",
        ),
        ({"chosen": [said("4")], "rejected": [said("5")]}, "do not begin with the same message"),
        ({"chosen": [USER, said("4"), USER], "rejected": [USER, said("5")]}, "must be one message of the assistant"),
        ({"prompt": [USER, said("?")], "chosen": [said("4")], "rejected": [said("5")]}, "ends with the assistant's"),
        ({"prompt": [USER, said("?")], "chosen": "4", "rejected": "5"}, "ends with the assistant's"),
        ({"prompt": [], "chosen": "4", "rejected": "5"}, "no message of the user with a text"),
        (
            {"prompt": [USER], "chosen": [USER], "rejected": [said("5")]},
            r"chosen must be one message .* \['user'\]",
        ),
    ],
)
def test_a_row_that_says_nothing_is_named(record, message):
    with pytest.raises(BadPair, match=message):
        pair(record, "f:7")


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_pairs_of_rounds_are_read(tmp_path):
    """Two right and two wrong answers to each of ten problems: a fifth of the problems is held out."""
    rows = [
        {
            "key": f"sums/{i}",
            "index": i,
            "sample_index": sample,
            "prompt": [{"role": "user", "content": f"{i}+1="}],
            "completion": str(i + 1 if sample < 2 else i + sample),
            "ended": "done",
            "tokens": 2,
            "scores": {},
            "reward": float(sample < 2),
        }
        for i in range(10)
        for sample in range(4)
    ]
    pairs = filter_rows(FilterStage(reads="grow", pairs="best_worst"), rows, seed=0)
    task = Preferences(write(tmp_path / "rows.jsonl", *pairs))
    held_out = task.on("held_out")
    assert (len(task), len(held_out)) == (8, 2)
    for prompt in (*map(task.__getitem__, range(8)), *map(held_out.__getitem__, range(2))):
        number = int(prompt.messages[0]["content"].removesuffix("+1="))
        assert (prompt.info["chosen"], prompt.info["rejected"]) == (str(number + 1), str(number + 2))


def test_bad_rows_are_refused_or_counted(tmp_path, caplog):
    good = [{"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": "x"} for i in range(10)]
    path = write(tmp_path / "p.jsonl", *good, {"prompt": "1+1=", "chosen": "2", "rejected": "2"})
    with pytest.raises(BadPair, match=r"p\.jsonl:11: chosen and rejected are the same"):
        len(Preferences(path))
    task = Preferences(path, skip_bad=True)
    assert len(task) + len(task.on("held_out")) == 10
    assert "1 of 11 rows left out" in caplog.text


def test_parquet_is_read_too(tmp_path):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = [{"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": "x"} for i in range(10)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    assert len(Preferences(str(tmp_path / "p.parquet"))) == 8


def test_no_prompt_is_in_both_splits(tmp_path):
    rows = [{"prompt": f"{i % 10}+1=", "chosen": str(i), "rejected": "x"} for i in range(40)]
    task = Preferences(write(tmp_path / "p.jsonl", *rows))
    mine, theirs = ({t[i].messages[0]["content"] for i in range(len(t))} for t in (task, task.on("held_out")))
    assert not mine & theirs and len(mine | theirs) == 10


def test_the_file_that_comes_with_the_task_is_in_order():
    task = Preferences()
    for i in range(len(task)):
        prompt = task[i]
        first, second = prompt.messages[0]["content"].rstrip("=").split("+")
        assert int(prompt.info["chosen"]) == int(first) + int(second) != int(prompt.info["rejected"])
    assert task.demonstrate(0) == task[0].info["chosen"]
