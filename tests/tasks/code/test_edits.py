"""Search and replace blocks: what fits, the changed file, and SWE-RL's reward."""

import pytest

from tasks.edits import Edits
from tasks.edits.blocks import apply_blocks, compare_changes, parse_blocks, write_block, write_patch
from tasks.edits.rewards import swe_rl
from tasks.edits.task import KINDS, Problem
from tests.tasks.replies import reply

FILE = "port=1\nhost=2\nport2=1"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("host=2", "host=3", "port=1\nhost=3\nport2=1"),
        ("host=2", "", "port=1\nport2=1"),
        ("port=1\nhost=2", "a=1", "a=1\nport2=1"),
        ("port2=1", "port2=1\nx=1", f"{FILE}\nx=1"),
        ("host", "guest", None),  # half of a line
        ("rate=1", "rate=2", None),
        ("host=2", "host=2", None),  # no change
        (FILE, "", ""),
    ],
)
def test_a_block_replaces_whole_lines(old, new, after):
    block = write_block(old, new)
    assert parse_blocks(block) == [(old, new)]
    assert apply_blocks(FILE, [(old, new)]) == after


def test_blocks_are_applied_one_after_the_other_and_ambiguous_ones_do_not_fit():
    two = parse_blocks(f"{write_block('host=2', 'host=3')}\n{write_block('host=3', 'host=4')}\n")
    assert two is not None and apply_blocks(FILE, two) == "port=1\nhost=4\nport2=1"
    assert apply_blocks("a=1\nb=2\na=1", [("a=1", "a=2")]) is None
    assert apply_blocks("a=1\na=1\nb=2", [("a=1", "a=2")]) is None  # equal lines one after the other


def test_the_reward_of_a_patch():
    before, right = "a=1\nb=2", "a=3\nb=2"
    assert write_patch(before, right) == "-a=1\n+a=3\n b=2"
    assert compare_changes(before, right, right) == 1 and compare_changes(before, before, right) == 0
    assert compare_changes(before, "a=2\nb=2", right) == pytest.approx(2 * 13 / 28)
    assert swe_rl(format=0.0, similarity=0.0) == -1 and swe_rl(format=1.0, similarity=0.5) == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_edit_changes_the_file_as_it_says(kind):
    task = Edits(kinds=(kind,), count=50)
    for index in range(50):
        prompt, problem = task[index], task.problem(index)
        assert isinstance(problem, Problem) and prompt.answer != problem.file
        assert set(task.score(reply(prompt, task.demonstrate(index))).values()) == {1.0}


def test_text_around_a_block_is_refused():
    task = Edits()
    assert task.score(reply(task[0], f"Sure.\n{task.demonstrate(0)}"))["format"] == 0
    assert parse_blocks("") is None and parse_blocks("x" * 5000) is None


@pytest.mark.parametrize("options", [{"lines": (1, 3)}, {"lines": (3, 99)}, {"kinds": ()}, {"kinds": ("swap",)}])
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="edits"):
        Edits(**options)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_do_not_matter(end):
    task = Edits()
    for index in range(20):
        assert task.score(reply(task[index], task.demonstrate(index).replace("\n", end)))["exact"] == 1


@pytest.mark.parametrize("line", ["++ x=0", "-- x=0", "@@ x=0", "+++ b", "--- a", "++", "", " ", "\u2028", "x\x0b"])
def test_lines_that_look_like_headers_of_a_patch_lower_the_similarity(line):
    task = Edits()
    for index in range(20):
        block = task.demonstrate(index).splitlines()
        answer = "\n".join([*block[:-1], *[line] * 20, block[-1]])
        scores = task.score(reply(task[index], answer))
        assert scores["exact"] == 0 and scores["similarity"] < 1, answer


def test_ends_of_lines_may_be_those_of_windows():
    task = Edits()
    for index in range(20):
        assert set(task.score(reply(task[index], task.demonstrate(index).replace("\n", "\r\n"))).values()) == {1.0}
