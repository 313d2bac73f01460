"""Raw text: sentences, the rule for a prefix, disjoint parts, and a file of one's own."""

import pytest

from tasks.passages import Passages
from tasks.passages.task import is_prefix, read_sentences, read_words
from tests.tasks.replies import reply

FOLLOWING = ["a b c .", "d e ."]


@pytest.mark.parametrize(
    ("answer", "prefix"),
    [("a b c", True), ("a b c d", False), ("a b c . d e", True), ("a b", False), ("", False), ("d e", False)],
)
def test_a_prefix_is_whole_sentences(answer, prefix):
    assert is_prefix(read_words(answer), FOLLOWING) == prefix


def test_the_parts_of_the_text_share_no_sentence():
    task = Passages()
    parts = [task.on(split).sentences for split in ("train", "held_out")]
    assert not set(parts[0]) & set(parts[1]) and parts[0] + parts[1] == read_sentences(None)
    for split in ("train", "held_out"):
        own = task.on(split)
        assert len(own) == len(own.sentences) - 2
        for index in range(len(own)):
            assert own[index].answer not in own[index].messages[0]["content"]


def test_one_or_more_sentences_are_right(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(f"Sentence number {n} has words." for n in range(20)))
    task = Passages(path=str(path), context=2)
    prompt = task[3]
    assert prompt.messages[0]["content"].splitlines() == [
        "Sentence number 2 has words.",
        "Sentence number 3 has words.",
        "[...]",
    ]
    one, two = (f"Sentence number {n} has words." for n in (4, 5))
    for answer, exact in ((one, 1), (f"{one} {two}", 1), (one[:-1], 1), (two, 0), ("Sentence number", 0)):
        assert task.score(reply(prompt, answer))["exact"] == exact
    assert task.score(reply(prompt, "Sentence number 9 has words."))["words"] == pytest.approx(0.4)
    middle = Passages(path=str(path), kind="middle")[3]
    assert middle.messages[0]["content"].endswith(f"[...]\n{two}") and middle.info["following"] == [one]


def test_a_text_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "short.txt").write_text("One sentence is not enough here.")
    with pytest.raises(ValueError, match=r"short\.txt has 1 sentences"):
        len(Passages(path=str(tmp_path / "short.txt")))


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends_do_not_matter(end):
    task = Passages()
    assert task.score(reply(task[0], f"{task[0].answer}{end}"))["exact"] == 1
    assert task.score(reply(task[0], f"<think>x{end}</think>{end}{task[0].answer.replace(' ', end, 1)}"))["exact"] == 1


@pytest.mark.parametrize("kind", ["next", "middle"])
def test_ends_of_lines_may_be_those_of_windows(kind):
    task = Passages(kind=kind)
    for index in range(20):
        right = task.demonstrate(index)
        for answer in (f"{right}\r\n", f"\r\n{right}\r\n\r\n", right.replace(" ", "\r\n")):
            assert set(task.score(reply(task[index], answer)).values()) == {1.0}
