import csv
import io
import json
import os
import re
import subprocess
import sys

import imageio.v2 as imageio
import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

from mmrl.core.errors import is_user_error
from mmrl.data.checks.prompt_lengths import drop_long_prompts
from tasks.dataset import DatasetTask
from tasks.dataset.verify import verify
from tests.malformed.files.policies import text_policy
from tests.tasks.replies import reply


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def sums(count, start=0):
    return [{"question": f"{i}+1?", "answer": i + 1} for i in range(start, start + count)]


def questions(task):
    return [task[i].messages[0]["content"] for i in range(len(task))]


@pytest.mark.parametrize("equality", ["text", "math"])
def test_an_answer_inside_thoughts_is_none(tmp_path, equality):
    task = DatasetTask(write(tmp_path / "a.jsonl", *sums(4)), equality=equality)
    answer = task[0].answer
    for said, right in (("{}", 1), ("<think>x</think>\n{}", 1), ("<think>maybe\n{}", 0), ("<think>x\n{}</think>", 0)):
        assert task.score(reply(task[0], said.format(answer)))["exact"] == right, said


def test_superscripts_are_powers():
    for said, answer in (("10²", "102"), ("102", "10²"), ("x2", "x²"), ("2³", "23")):
        assert verify(said, answer)["exact"] == 0
    assert verify("x²", "x^2")["exact"] == verify("４２", "42")["exact"] == 1


def test_every_minus_sign_is_one(tmp_path):
    for minus in "-−–﹣－":
        assert verify(f"{minus}5", "-5")["exact"] == verify("-5.0", f"{minus}5")["exact"] == 1
        assert verify(f"{minus}5", "5")["exact"] == 0
    rows = [{"question": f"{i}?", "answer": f"−{i + 1}"} for i in range(4)]
    task = DatasetTask(write(tmp_path / "a.jsonl", *rows), extract="last_number")
    assert task.score(reply(task[0], task.demonstrate(0)))["exact"] == 1


def test_splits_of_one_file_are_disjoint_and_cover_it(tmp_path):
    task = DatasetTask(write(tmp_path / "a.jsonl", *sums(40)), held_out_fraction=0.25)
    seen, unseen = questions(task), questions(task.on("held_out"))
    assert (len(seen), len(unseen)) == (30, 10)
    assert {*seen, *unseen} == {f"{i}+1?" for i in range(40)}
    assert set(unseen) != set(questions(DatasetTask(task.path, held_out_fraction=0.25, seed=1, split="held_out")))


def test_a_repeated_question_does_not_cross_the_split(tmp_path):
    rows = [{"question": f"q {i % 10}" + " " * (i // 10), "answer": "a"} for i in range(30)]
    for seed in range(10):
        task = DatasetTask(write(tmp_path / "a.jsonl", *rows), held_out_fraction=0.3, seed=seed)
        seen, unseen = ({q.strip() for q in questions(part)} for part in (task, task.on("held_out")))
        assert len(seen) == 7 and len(unseen) == 3 and not seen & unseen


def test_a_file_of_its_own_is_the_held_out_split(tmp_path):
    task = DatasetTask(write(tmp_path / "a.jsonl", *sums(3)), write(tmp_path / "b.jsonl", *sums(2, start=3)))
    assert questions(task) == ["0+1?", "1+1?", "2+1?"]
    assert questions(task.on("held_out")) == ["3+1?", "4+1?"]


def test_a_problem_in_both_files_is_refused(tmp_path):
    task = DatasetTask(write(tmp_path / "a.jsonl", *sums(3)), write(tmp_path / "b.jsonl", *sums(2, start=2)))
    with pytest.raises(ValueError, match=r"b\.jsonl:1: the same problem is trained on, .*a\.jsonl:3"):
        len(task)


def test_prompt_demonstration_and_instructions(tmp_path):
    path = write(tmp_path / "a.jsonl", "", *[{"q": f"Name {i}?", "a": f"N{i}"} for i in range(4)])
    task = DatasetTask(path, answer="a", template="One word.\n{q}")
    prompt = task[0]
    index = re.search(r"\d", prompt.answer).group()
    assert prompt.messages == ({"role": "user", "content": f"One word.\nName {index}?"},)
    assert prompt.place.endswith(f"a.jsonl:{int(index) + 2}")  # the first line is blank
    assert task.demonstrate(0) == prompt.answer == f"N{index}"
    assert task.score(reply(prompt, f"n{index}.")) == {"exact": 1.0}
    assert task.score(reply(prompt, "M")) == {"exact": 0.0}


def test_image_is_read_beside_the_file(tmp_path):
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    (tmp_path / "photos").mkdir()
    Image.fromarray(pixels).save(tmp_path / "photos" / "x.png")
    path = write(tmp_path / "a.jsonl", *[{**row, "image": "photos/x.png"} for row in sums(4)])
    prompt = DatasetTask(path, images="image")[0]
    np.testing.assert_array_equal(prompt.images[0], pixels)
    assert prompt.messages[0]["content"][0] == {"type": "image"}


def test_an_edited_file_is_read_again(tmp_path):
    task = DatasetTask(write(tmp_path / "a.jsonl", *sums(4)))
    assert len(task) == 4 - 1
    write(tmp_path / "a.jsonl", *sums(40))
    assert len(task) == 40 - 4


GOOD = {"question": "1+1?", "answer": 2}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"question": "a"', r":2: broken JSON at character 17: .*one complete object per line"),
        ("[1, 2]", r":2: the line is a list, not an object"),
        ({"question": "a"}, r":2: column 'answer' is missing, the row has \['question'\].*task\.answer"),
        ({"question": "a", "answer": None}, r":2: column 'answer' is empty; fill in the answer or delete the row"),
        ({"question": "a", "answer": " "}, r":2: column 'answer' is empty"),
        ({"question": "a", "answer": [1]}, r":2: column 'answer' must be text or a finite number, got \[1\]"),
        ({"question": "a", "answer": True}, r":2: column 'answer' must be text or a finite number, got True"),
        ('{"question": "a", "answer": NaN}', r":2: column 'answer' must be text or a finite number, got nan"),
        ({"question": 5, "answer": 1}, r":2: column 'question' must be text or a list of messages, got 5"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, bad, message):
    task = DatasetTask(write(tmp_path / "a.jsonl", GOOD, bad))
    with pytest.raises(ValueError, match=r"a\.jsonl" + message):
        len(task)


def test_other_refusals(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.jsonl; set task\.path"):
        len(DatasetTask(str(tmp_path / "none.jsonl")))
    path = write(tmp_path / "a.jsonl", GOOD)
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.jsonl; set task\.held_out_path"):
        len(DatasetTask(path, str(tmp_path / "none.jsonl")))
    with pytest.raises(ValueError, match=r"1 distinct problems are too few to hold out 1; .*held_out_path"):
        len(DatasetTask(path))
    with pytest.raises(ValueError, match="has no rows"):
        len(DatasetTask(write(tmp_path / "empty.jsonl", "")))
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xe9", "answer": 1}\n')
    with pytest.raises(ValueError, match=r"latin\.jsonl:1: not UTF-8 text \(byte 14\)"):
        len(DatasetTask(str(tmp_path / "latin.jsonl")))
    with pytest.raises(IndexError, match=r"'dataset' \(train\) has 3 problems, asked for index 3"):
        DatasetTask(write(tmp_path / "b.jsonl", *sums(4)))[3]
    with pytest.raises(ValueError, match="'dataset' has the splits"):
        DatasetTask(path, split="test")


def test_bad_images_are_refused_with_their_place(tmp_path):
    rows = [{**row, "image": "x.png"} for row in sums(4)]
    path = write(tmp_path / "a.jsonl", *rows)
    with pytest.raises(FileNotFoundError, match=r"a\.jsonl:1: column 'image' names .*x\.png, which does not exist"):
        len(DatasetTask(path, images="image"))
    (tmp_path / "x.png").write_text("not an image")
    with pytest.raises(ValueError, match=r"a\.jsonl:\d: .*x\.png cannot be read as an image"):
        DatasetTask(path, images="image")[0]


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("Lima", "lima", 1),
        ("  The  Andes.\n", "the andes", 1),
        ("It is in Peru.\nLima.", "Lima", 1),
        ("Lima or Quito", "Lima", 0),
        ("Ｌｉｍａ", "Lima", 1),  # full-width letters
        ("0.50", "0.5", 1),
        ("1/2", "0.5", 1),
        ("1,250.0", "1250", 1),
        ("12,50", "1250", 0),  # not how thousands are grouped
        ("1e3", "1000", 1),
        ("-.5", "-0.5", 1),
        ("+7", "7", 1),
        ("0.3333", "1/3", 0),
        ("3.", "3", 1),
        ("1/0", "1/0", 1),  # as text
        ("1/0", "0", 0),
        ("1e99999999", "1", 0),  # too long to be taken for a number, at once
        ("", "0", 0),
        (".", "0", 0),
        ("e5", "0", 0),
    ],
)
def test_verify(text, answer, right):
    assert verify(text, answer) == {"exact": right}


PIXELS = [np.full((4, 6, 3), shade, np.uint8) for shade in (10, 120, 250)]


def encode(pixels):
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG")
    return stored.getvalue()


def texts(task):
    """(messages, answer, images) of all problems of both splits."""
    parts = (task, task.on("held_out"))
    prompts = [part[i] for part in parts for i in range(len(part))]
    return sorted((str(p.messages), p.answer, [i.tolist() for i in p.images]) for p in prompts)


def test_csv_json_parquet_and_arrow_give_the_prompts_of_json_lines(tmp_path):
    rows = [{"question": f"What, then, is\n{i}+1?", "answer": str(i + 1), "level": i} for i in range(20)]
    write(tmp_path / "a.jsonl", *rows)
    (tmp_path / "a.json").write_text(json.dumps(rows))
    with open(tmp_path / "a.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    for name, make in (("a.arrow", pyarrow.ipc.new_stream), ("b.arrow", pyarrow.ipc.new_file)):
        with pyarrow.OSFile(str(tmp_path / name), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=6)
    expected = texts(DatasetTask(str(tmp_path / "a.jsonl")))
    assert len(expected) == 20
    for name in ("a.json", "a.csv", "a.parquet", "a.arrow", "b.arrow"):
        task = DatasetTask(str(tmp_path / name))
        assert texts(task) == expected
        assert str(task[3].info["level"]) in task[3].messages[0]["content"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_datasets_writes_gives_equal_prompts(tmp_path, count, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for i in range(count):
        Image.fromarray(PIXELS[i]).save(tmp_path / f"{i}.png")
    names = [f"{i}.png" for i in range(count)]
    plain = [{"prompt": f"{i}?", "solution": str(i), "images": names} for i in range(12)]
    expected = texts(DatasetTask(write(tmp_path / "a.jsonl", *plain), format="trl"))
    features = {"prompt": datasets.Value("string"), "solution": datasets.Value("string")}
    features["images"] = datasets.List(datasets.Image())
    rows = [{**row, "images": [str(tmp_path / name) for name in names]} for row in plain]
    stored = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    stored.to_parquet(tmp_path / "b.parquet")
    stored.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": stored, "test": stored}).save_to_disk(tmp_path / "splits")
    (tmp_path / "hub").mkdir()
    stored.to_parquet(tmp_path / "hub" / "train-0.parquet")
    arrow = next((tmp_path / "saved").glob("*.arrow"))
    for path in ("b.parquet", "saved", "splits", "hub", arrow):
        assert texts(DatasetTask(str(tmp_path / path), format="trl", image_folder="/")) == expected, path
    stored.remove_columns("images").to_csv(tmp_path / "c.csv")
    stored.remove_columns("images").to_json(tmp_path / "c.jsonl")
    if not count:
        assert texts(DatasetTask(str(tmp_path / "c.csv"), format="trl")) == expected
        assert texts(DatasetTask(str(tmp_path / "c.jsonl"), format="trl")) == expected


def test_the_held_out_split_of_a_data_set(tmp_path):
    datasets = pytest.importorskip("datasets")
    parts = {"train": sums(8), "test": sums(3, start=8)}
    datasets.DatasetDict({k: datasets.Dataset.from_list(rows) for k, rows in parts.items()}).save_to_disk(tmp_path)
    task = DatasetTask(str(tmp_path), held_out_split="test")
    assert len(task) == 8 and questions(task.on("held_out")) == ["8+1?", "9+1?", "10+1?"]
    with pytest.raises(ValueError, match=r"`datasets` cannot load .*split dev.*set task\.path"):
        len(DatasetTask(str(tmp_path), train_split="dev"))


def test_a_hub_id_is_read_from_the_cache_of_datasets_without_a_network(tmp_path):
    """The cache is written by `datasets` itself, which names its folder owner___name for the id owner/name."""
    pytest.importorskip("datasets")
    (tmp_path / "name").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(sums(5)), tmp_path / "name" / "train-0.parquet")
    programs = (
        "import datasets, sys; datasets.load_dataset(sys.argv[1])",
        "import sys, pathlib, os; cache = pathlib.Path(os.environ['HF_DATASETS_CACHE'])\n"
        "(cache / 'name').rename(cache / 'owner___name')\n"
        "from tasks.dataset import DatasetTask; task = DatasetTask('owner/name', held_out_fraction=0.4)\n"
        "print(len(task), len(task.on('held_out')), task[0].place)\n"
        "print(len(DatasetTask('owner/other')))",
    )
    cache = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    for program, offline in zip(programs, "01"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "name")],
            env={**cache, "HF_HUB_OFFLINE": offline},
            capture_output=True,
            text=True,
        )
    assert re.fullmatch(r"3 2 owner/name \(train\):row \d\n", done.stdout), done.stderr
    assert re.search(r"`datasets` cannot load owner/other .*set task\.path, task\.subset", done.stderr)


def test_rows_of_verl(tmp_path):
    rows = [
        {
            "data_source": "geometry",
            "prompt": [
                {"role": "system", "content": "Think."},
                {"role": "user", "content": f"<image>How many? <image>{i}"},
            ],
            "images": [{"bytes": encode(PIXELS[i % 3]), "path": None}, {"bytes": encode(PIXELS[0]), "path": None}],
            "reward_model": {"style": "rule", "ground_truth": str(i)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i in range(6)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    task = DatasetTask(str(tmp_path / "a.parquet"), format="verl")
    prompt = task[0]
    index = prompt.info["extra_info"]["index"]
    assert prompt.answer == str(index) and prompt.info["data_source"] == "geometry"
    assert prompt.messages[0] == {"role": "system", "content": "Think."}
    image, *rest = prompt.messages[1]["content"]
    assert image == {"type": "image"}
    assert rest == [{"type": "text", "text": "How many? "}, {"type": "image"}, {"type": "text", "text": str(index)}]
    np.testing.assert_array_equal(prompt.images, [PIXELS[index % 3], PIXELS[0]])
    assert [p.images[0].shape for p in task.prompts_to_check()] == [(4, 6, 3)] * len(task)


def test_rows_of_trl(tmp_path):
    message = {"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": "Shade?"}]}
    rows = [
        {"prompt": [message], "images": [{"bytes": encode(PIXELS[i % 3]), "path": "x.png"}], "solution": str(i)}
        for i in range(4)
    ]
    rows = [
        {**row, "prompt": [{**message, "content": [*message["content"], {"type": "text", "text": str(i)}]}]}
        for i, row in enumerate(rows)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    prompt = DatasetTask(str(tmp_path / "a.parquet"), format="trl", system="Look.")[0]
    assert prompt.messages[0] == {"role": "system", "content": "Look."}
    assert prompt.messages[1]["content"][:2] == [{"type": "image"}, {"type": "text", "text": "Shade?"}]
    np.testing.assert_array_equal(prompt.images[0], PIXELS[int(prompt.answer) % 3])
    assert prompt.info == {"solution": prompt.answer}


def test_conversations_and_prompts_without_an_answer(tmp_path):
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "?"},
    ]
    rows = [{"messages": [*turns, {"role": "assistant", "content": str(i)}]} for i in range(3)]
    rows = [{"messages": [{"role": "system", "content": str(i)}, *row["messages"]]} for i, row in enumerate(rows)]
    task = DatasetTask(write(tmp_path / "a.jsonl", *rows), format="conversations")
    assert [m["content"] for m in task[0].messages] == [task[0].answer, "hi", "hello", "?"]
    assert task.demonstrate(0) == task[0].answer
    task = DatasetTask(write(tmp_path / "b.jsonl", *[{"prompt": str(i)} for i in range(3)]), format="prompts")
    assert task[0].answer is None and task.score(reply(task[0], "x")) == {}
    with pytest.raises(ValueError, match=r"b\.jsonl:\d: there is no answer to imitate"):
        task.demonstrate(0)


def test_template_and_system_message(tmp_path):
    rows = [{"question": f"{{x}} {i}?", "answer": "A", "choices": "(A) {question} (B) no"} for i in range(4)]
    template = "{question}\n{choices}\nAnswer with {{one}} letter."
    task = DatasetTask(write(tmp_path / "a.jsonl", *rows), template=template, system="Choose.", extract="choice")
    system, user = task[0].messages
    assert system == {"role": "system", "content": "Choose."}
    index = re.search(r"\d", user["content"]).group()
    assert user["content"] == f"{{x}} {index}?\n(A) {{question}} (B) no\nAnswer with {{one}} letter."
    assert task.score(reply(task[0], "It is surely (A), not B.")) == {"format": 1.0, "exact": 1.0}
    assert task.score(reply(task[0], "hm")) == {"format": 0.0, "exact": 0.0}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{question.__class__}", "without attributes"),
        ("{question[0]}", "without attributes"),
        ("{question!r}", "without attributes"),
        ("{question:>9999999999}", "without attributes"),
        ("{}", "without attributes"),
        ("{question", "expected '}'"),
        ("One word.", "names no column"),
    ],
)
def test_templates_that_reach_further_than_columns_are_refused(template, message):
    with pytest.raises(ValueError, match=rf"task\.template=.*{message}"):
        DatasetTask("a.jsonl", template=template)


def test_one_text_asks_about_the_pictures_of_all_rows(tmp_path):
    for name in "ab":
        Image.new("RGB", (20, 20), "red" if name == "a" else "blue").save(tmp_path / f"{name}.png")
    (tmp_path / "counts.csv").write_text("file,dots\na.png,1\nb.png,2\n")
    task = DatasetTask(str(tmp_path / "counts.csv"), images="file", answer="dots", template="How many dots?")
    both = [part[i] for part in (task, task.on("held_out")) for i in range(len(part))]
    assert {problem.answer for problem in both} == {"1", "2"}
    for problem in both:
        assert problem.messages[0]["content"] == [{"type": "image"}, {"type": "text", "text": "How many dots?"}]
        assert problem.images[0][0, 0].tolist() == ([255, 0, 0] if problem.answer == "1" else [0, 0, 255])


def test_the_split_of_a_column(tmp_path):
    rows = [{**row, "part": "test" if i < 2 else "train"} for i, row in enumerate(sums(6))]
    task = DatasetTask(write(tmp_path / "a.jsonl", *rows), held_out_column="part")
    assert questions(task) == ["2+1?", "3+1?", "4+1?", "5+1?"] and questions(task.on("held_out")) == ["0+1?", "1+1?"]
    write(tmp_path / "a.jsonl", *rows, {**rows[0], "part": "train"})
    with pytest.raises(ValueError, match=r"a\.jsonl:1: the same problem is trained on, .*a\.jsonl:7"):
        len(task)
    task = DatasetTask(task.path, held_out_column="part", skip_bad=True)
    assert questions(task) == ["2+1?", "3+1?", "4+1?", "5+1?"]


def test_bad_rows_are_left_out_and_counted(tmp_path, caplog):
    rows = [*sums(4), {"question": "x"}, {"question": "y", "answer": None}, "{", {"question": "0+1?", "answer": 7}]
    task = DatasetTask(write(tmp_path / "a.jsonl", *rows), skip_bad=True, held_out_fraction=0.25)
    assert sorted([*questions(task), *questions(task.on("held_out"))]) == ["0+1?", "1+1?", "2+1?", "3+1?"]
    assert len(caplog.messages) == 1
    assert re.search(r"4 of 8 rows are left out .*a\.jsonl:5: column 'answer' is missing", caplog.messages[0])


def test_the_answer_of_a_solution(tmp_path):
    rows = [{"question": f"{i}?", "answer": f"We add.\n{i} + 0 = {i}\n#### {i}"} for i in range(4)]
    task = DatasetTask(write(tmp_path / "a.jsonl", *rows), answer_extract="marker", extract="boxed")
    assert task[0].messages[0]["content"] == f"{task[0].answer}?"
    assert task.demonstrate(0) == rf"\boxed{{{task[0].answer}}}"
    assert task.score(reply(task[0], task.demonstrate(0))) == {"format": 1.0, "exact": 1.0}
    assert task.score(reply(task[0], task[0].answer)) == {"format": 0.0, "exact": 0.0}


def test_long_prompts_are_left_out_by_the_tokens_of_the_policy(tmp_path, caplog):
    policy = text_policy()
    rows = [{"question": "x" * 10 * i, "answer": i} for i in range(1, 21)]
    task = DatasetTask(write(tmp_path / "a.jsonl", *rows), max_prompt_tokens=100, held_out_fraction=0.5)
    fewer = drop_long_prompts(task, policy)
    for split in ("train", "held_out"):
        whole, part = task.on(split), fewer.on(split)
        lengths = [len(policy.encode(whole[i].observation)["input_ids"]) for i in range(len(whole))]
        fitting = [question for question, length in zip(questions(whole), lengths) if length <= 100]
        assert questions(part) == fitting and 0 < len(part) < len(whole)
    assert sum("longer than task.max_prompt_tokens=100" in message for message in caplog.messages) == 2
    assert len(drop_long_prompts(fewer, policy)) == len(fewer)
    with pytest.raises(ValueError, match=r"max_prompt_tokens=2: all \d+ prompts"):
        drop_long_prompts(DatasetTask(task.path, max_prompt_tokens=2), policy)


def test_frames_of_videos_are_images(tmp_path):
    frames = [np.full((64, 48, 3), 20 * i, np.uint8) for i in range(12)]
    imageio.mimsave(tmp_path / "a.mp4", frames, fps=10, macro_block_size=1)
    rows = [{"question": f"{i}?", "answer": i, "clip": "a.mp4"} for i in range(3)]
    prompt = DatasetTask(write(tmp_path / "a.jsonl", *rows), videos="clip", frames=4)[0]
    assert [image.shape for image in prompt.images] == [(64, 48, 3)] * 4
    assert [part["type"] for part in prompt.messages[0]["content"]] == [*["image"] * 4, "text"]
    shades = [image.mean() for image in prompt.images]  # frames 0, 4, 7, 11; the codec changes shades a little
    np.testing.assert_allclose(shades, [0, 80, 140, 220], atol=6)
    stored = (tmp_path / "a.mp4").read_bytes()
    table = pyarrow.Table.from_pylist([{**row, "clip": {"bytes": stored, "path": None}} for row in rows])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    same = DatasetTask(str(tmp_path / "a.parquet"), videos="clip", frames=4)[0]
    np.testing.assert_array_equal(same.images, prompt.images)
    for i, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    rows = [{**row, "clip": ["0.png", "1.png", "2.png"]} for row in rows]
    prompt = DatasetTask(write(tmp_path / "b.jsonl", *rows), videos="clip", frames=2)[0]
    np.testing.assert_array_equal(prompt.images, [PIXELS[0], PIXELS[2]])


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet", "arrow"])
def test_a_hundred_thousand_rows_need_little_memory(tmp_path, ending):
    """In a process of its own, whose peak memory grows by less than 300 MB over that after the imports."""
    rows = [{"question": f"{i} " + "lorem ipsum " * 30, "answer": str(i), "level": i % 7} for i in range(100_000)]
    path = tmp_path / f"a.{ending}"
    if ending == "jsonl":
        write(path, *rows)
    elif ending == "csv":
        pyarrow.csv.write_csv(pyarrow.Table.from_pylist(rows), path)
    elif ending == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        table = pyarrow.Table.from_pylist(rows)
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    program = (
        "import resource, sys; import tasks.dataset, pyarrow.parquet\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before = peak(); task = tasks.dataset.DatasetTask(sys.argv[1]); assert len(task) == 90_000\n"
        "for i in range(0, 90_000, 1000): task[i]\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 300


def test_a_missing_pyarrow_is_one_line_with_its_command(tmp_path, monkeypatch):
    file = tmp_path / "q.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"question": ["1?", "2?"], "answer": [1, 2]}), file)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # Python's own mark of a module that cannot be imported
    with pytest.raises(
        ModuleNotFoundError, match=r"q\.parquet needs the package pyarrow: pip install 'mmrl-l.*\[data\]'"
    ) as found:
        len(DatasetTask(path=str(file)))
    assert is_user_error(found.value)


def test_rows_of_gsm8k(tmp_path):
    path = tmp_path / "gsm8k.jsonl"
    rows = [
        {
            "question": f"How many are {n} and 1,000?",
            "answer": f"{n} + 1000 = <<{n}+1000={n + 1000}>>\n#### {n + 1000:,}",
        }
        for n in range(8)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = DatasetTask(path=str(path), answer_extract="marker", extract="last_number")
    prompt = next(task[i] for i in range(len(task)) if task[i].answer == "1,003")
    for text, exact in (
        ("It is 1003.", 1),
        ("3 + 1000 = 1,003", 1),
        ("1003.0", 1),
        ("1003 or 1004", 0),
        ("1004", 0),
        ("<think>1003</think>", 0),
        ("#### 1003 #### 7", 0),
    ):
        assert task.score(reply(prompt, text))["exact"] == exact, text


def test_rows_of_math(tmp_path):
    path = tmp_path / "math.jsonl"
    rows = [
        {
            "problem": f"What is $1/{n}$?",
            "level": "Level 1",
            "type": "Algebra",
            "solution": f"$\\boxed{{\\frac{{1}}{{{n}}}}}$.",
        }
        for n in range(2, 10)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"prompt": "problem", "answer": "solution", "answer_extract": "boxed", "extract": "boxed"}
    task = DatasetTask(path=str(path), **columns)
    prompt = task[0]
    right = prompt.answer
    assert right.startswith("\\frac{1}{") and prompt.info["type"] == "Algebra"
    assert task.score(reply(prompt, f"So \\boxed{{{right}}}."))["exact"] == 1
    assert task.score(reply(prompt, f"\\boxed{{{right}}} or \\boxed{{7}}"))["exact"] == 0
    assert task.score(reply(prompt, right)) == {"format": 0, "exact": 0}
