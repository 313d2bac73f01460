"""Edits of several files: similarities and SWE-RL's reward by hand, and answers that do not fit."""

from dataclasses import replace

import pytest

from tasks.edits.blocks import write_block
from tasks.edits.files import FileEdits, apply_edits, compare_files, join_patches, parse_edits
from tasks.edits.rewards import swe_rl
from tests.tasks.replies import reply

TASK = FileEdits()
BEFORE = {"a.cfg": "a=1", "b.cfg": "b=1\nc=2"}
RIGHT = {"a.cfg": "a=3", "b.cfg": "b=9\nc=2"}


def edit(path, old, new):
    return f"### {path}\n{write_block(old, new)}"


def scores(*edits, right=RIGHT):
    prompt = replace(TASK[0], answer=right, info={"files": BEFORE})
    return TASK.score(reply(prompt, "\n".join(edits)))


def test_similarities_by_hand():
    """-a=1 +a=2 and -a=1 +a=3 share 8 of 9 characters: 2 * 8 / 18 = .888889.

    Of two files one is perfect and one is missing: (1 + 0) / 2; a third one that nobody asked for costs too.
    """
    after = {"a.cfg": "a=2"}
    assert compare_files({"a.cfg": "a=1"}, after, {"a.cfg": "a=3"}) == pytest.approx(8 / 9)
    assert scores(edit("a.cfg", "a=1", "a=3"))["files"] == 0.5
    only = RIGHT | {"b.cfg": BEFORE["b.cfg"]}
    both = scores(edit("a.cfg", "a=1", "a=3"), edit("b.cfg", "c=2", "c=3"), right=only)
    assert both["files"] == 0.5 and both["exact"] == 0 and both["format"] == 1
    assert scores(edit("a.cfg", "a=1", "a=3"), edit("b.cfg", "b=1", "b=9")) == {
        **dict.fromkeys(("exact", "similarity", "files", "format"), 1.0)
    }


def test_the_similarity_of_the_whole_patch_by_hand():
    """Of the right patch, 15 characters of a.cfg, a line end and 20 of b.cfg, the first part is there: 30 / 51."""
    assert join_patches(BEFORE, RIGHT) == "a.cfg\n-a=1\n+a=3\nb.cfg\n-b=1\n+b=9\n c=2"
    result = scores(edit("a.cfg", "a=1", "a=3"))
    assert result["similarity"] == pytest.approx(2 * 15 / (15 + 36)) and result["exact"] == 0
    assert swe_rl(result["format"], result["similarity"]) == result["similarity"]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        write_block("a=1", "a=3"),  # no path
        edit("c.cfg", "a=1", "a=3"),  # no such file
        edit("b.cfg", "a=1", "a=3"),  # stands in another file
        edit("a.cfg", "a=1", "a=1"),
        f"{edit('a.cfg', 'a=1', 'a=3')}\n### b.cfg",  # a path without blocks
        f"Here:\n{edit('a.cfg', 'a=1', 'a=3')}",
    ],
)
def test_what_does_not_fit_earns_minus_one(answer):
    result = scores(answer)
    assert set(result.values()) == {0.0} and swe_rl(result["format"], result["similarity"]) == -1.0


def test_edits_that_undo_each_other_are_no_patch():
    result = scores(edit("a.cfg", "a=1", "a=5"), edit("a.cfg", "a=5", "a=1"))
    assert result == {"exact": 0.0, "similarity": 0.0, "files": 0.0, "format": 1.0}


def test_problems_change_one_or_two_files_and_splits_are_disjoint():
    counts = []
    for index in range(60):
        prompt, edits = TASK[index], parse_edits(TASK.demonstrate(index))
        before = prompt.info["files"]
        assert apply_edits(before, edits) == prompt.answer
        counts.append(sum(before[path] != prompt.answer[path] for path in before))
        assert counts[-1] == len(edits) and len(before) in (2, 3)
    assert set(counts) == {1, 2}
    train, held_out = ({t[i].messages[0]["content"] for i in range(100)} for t in (TASK, TASK.on("held_out")))
    assert len(train) > 90 and not train & held_out
    with pytest.raises(ValueError, match="changed must be the fewest and the most, from 1 to 2"):
        FileEdits(changed=[1, 3])
