import json
import re

import numpy as np
import pytest
from PIL import Image

from tasks.jsonl import JsonlTask
from tasks.jsonl.verify import verify
from tests.tasks.replies import reply


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def sums(count, start=0):
    return [{"question": f"{i}+1?", "answer": i + 1} for i in range(start, start + count)]


def questions(task):
    return [task[i].messages[0]["content"] for i in range(len(task))]


def test_splits_of_one_file_are_disjoint_and_cover_it(tmp_path):
    task = JsonlTask(write(tmp_path / "a.jsonl", *sums(40)), held_out_fraction=0.25)
    seen, unseen = questions(task), questions(task.on("held_out"))
    assert (len(seen), len(unseen)) == (30, 10)
    assert {*seen, *unseen} == {f"{i}+1?" for i in range(40)}
    assert set(unseen) != set(questions(JsonlTask(task.path, held_out_fraction=0.25, seed=1, split="held_out")))


def test_a_repeated_question_does_not_cross_the_split(tmp_path):
    rows = [{"question": f"q {i % 10}" + " " * (i // 10), "answer": "a"} for i in range(30)]
    for seed in range(10):
        task = JsonlTask(write(tmp_path / "a.jsonl", *rows), held_out_fraction=0.3, seed=seed)
        seen, unseen = ({q.strip() for q in questions(part)} for part in (task, task.on("held_out")))
        assert len(seen) == 7 and len(unseen) == 3 and not seen & unseen


def test_a_file_of_its_own_is_the_held_out_split(tmp_path):
    task = JsonlTask(write(tmp_path / "a.jsonl", *sums(3)), write(tmp_path / "b.jsonl", *sums(2, start=3)))
    assert questions(task) == ["0+1?", "1+1?", "2+1?"]
    assert questions(task.on("held_out")) == ["3+1?", "4+1?"]


def test_a_problem_in_both_files_is_refused(tmp_path):
    task = JsonlTask(write(tmp_path / "a.jsonl", *sums(3)), write(tmp_path / "b.jsonl", *sums(2, start=2)))
    with pytest.raises(ValueError, match=r"b\.jsonl:1: the same problem is trained on, .*a\.jsonl:3"):
        len(task)


def test_prompt_demonstration_and_instructions(tmp_path):
    path = write(tmp_path / "a.jsonl", "", *[{"q": f"Name {i}?", "a": f"N{i}"} for i in range(4)])
    task = JsonlTask(path, question="q", answer="a", instructions="One word.")
    prompt = task[0]
    index = re.search(r"\d", prompt.answer).group()
    assert prompt.messages == ({"role": "user", "content": f"One word.\nName {index}?"},)
    assert prompt.info["place"].endswith(f"a.jsonl:{int(index) + 2}")  # the first line is blank
    assert task.demonstrate(0) == prompt.answer == f"N{index}"
    assert task.score(reply(prompt, f"n{index}.")) == {"exact": 1.0}
    assert task.score(reply(prompt, "M")) == {"exact": 0.0}


def test_image_is_read_beside_the_file(tmp_path):
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    (tmp_path / "photos").mkdir()
    Image.fromarray(pixels).save(tmp_path / "photos" / "x.png")
    path = write(tmp_path / "a.jsonl", *[{**row, "image": "photos/x.png"} for row in sums(4)])
    prompt = JsonlTask(path, image="image")[0]
    np.testing.assert_array_equal(prompt.images[0], pixels)
    assert prompt.messages[0]["content"][0] == {"type": "image"}


def test_an_edited_file_is_read_again(tmp_path):
    task = JsonlTask(write(tmp_path / "a.jsonl", *sums(4)))
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
        ({"question": 5, "answer": 1}, r":2: column 'question' must be text, got 5"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, bad, message):
    task = JsonlTask(write(tmp_path / "a.jsonl", GOOD, bad))
    with pytest.raises(ValueError, match=r"a\.jsonl" + message):
        len(task)


def test_other_refusals(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.jsonl; set task\.path"):
        len(JsonlTask(str(tmp_path / "none.jsonl")))
    path = write(tmp_path / "a.jsonl", GOOD)
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.jsonl; set task\.held_out_path"):
        len(JsonlTask(path, str(tmp_path / "none.jsonl")))
    with pytest.raises(ValueError, match=r"1 distinct problems are too few to hold out 1; .*held_out_path"):
        len(JsonlTask(path))
    with pytest.raises(ValueError, match="has no rows"):
        len(JsonlTask(write(tmp_path / "empty.jsonl", "")))
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xe9", "answer": 1}\n')
    with pytest.raises(ValueError, match=r"latin\.jsonl:1: not UTF-8 text \(byte 14\)"):
        len(JsonlTask(str(tmp_path / "latin.jsonl")))
    with pytest.raises(IndexError, match=r"'jsonl' \(train\) has 3 problems, asked for index 3"):
        JsonlTask(write(tmp_path / "b.jsonl", *sums(4)))[3]
    with pytest.raises(ValueError, match="'jsonl' has the splits"):
        JsonlTask(path, split="test")


def test_bad_images_are_refused_with_their_place(tmp_path):
    rows = [{**row, "image": "x.png"} for row in sums(4)]
    path = write(tmp_path / "a.jsonl", *rows)
    with pytest.raises(FileNotFoundError, match=r"a\.jsonl:1: column 'image' names .*x\.png, which does not exist"):
        len(JsonlTask(path, image="image"))
    (tmp_path / "x.png").write_text("not an image")
    with pytest.raises(ValueError, match=r"a\.jsonl:\d: .*x\.png cannot be read as an image"):
        JsonlTask(path, image="image")[0]


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
