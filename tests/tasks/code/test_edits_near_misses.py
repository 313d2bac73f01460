"""Near misses of right edits, applied by GNU patch and compared with what the instruction says."""

import re
import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest

from tasks.edits import Edits
from tasks.edits.blocks import write_block
from tests.tasks.replies import reply


def follow(file, instruction):
    """Return the lines that an instruction leaves, read from its words alone."""
    pairs = [line.split("=") for line in file.split("\n")]
    patterns = {
        r"Set (\w+) to (\d+)\.": lambda name, value, new: [[name, new]],
        r"Delete (\w+)()\.": lambda name, value, new: [],
        r"Rename (\w+) to (\w+)\.": lambda name, value, new: [[new, value]],
        r"Insert (\w+=\d+) after (\w+)\.": None,
        r"Increase (\w+) by (\d+)\.": lambda name, value, new: [[name, str(int(value) + int(new))]],
    }
    matches = ((re.fullmatch(pattern, instruction), change) for pattern, change in patterns.items())
    match, change = next(both for both in matches if both[0])
    if change is None:
        line, after = match.groups()
        pairs = [p for pair in pairs for p in ([pair, line.split("=")] if pair[0] == after else [pair])]
    else:
        pairs = [p for n, v in pairs for p in (change(n, v, match[2]) if n == match[1] else [[n, v]])]
    return ["=".join(pair) for pair in pairs]


def apply_by_patch(folder, cases):
    """Apply the blocks of (file, blocks) with GNU patch; return the lines of each file, None where a block is rejected.

    A round applies the next block of every file. A hunk says at which line it stands; blocks without exactly one such
    place, without a change, or with old lines that are not in the file are rejected.
    """
    lines = [file.split("\n") for file, _ in cases]
    for turn in range(max(len(blocks) for _, blocks in cases)):
        hunks = []
        for k, (_, blocks) in enumerate(cases):
            if lines[k] is None or turn >= len(blocks):
                continue
            old, new = (side.split("\n") if side else [] for side in blocks[turn])
            places = [i for i in range(len(lines[k])) if lines[k][i : i + len(old)] == old]
            if not old or len(places) != 1 or old == new:
                lines[k] = None
                continue
            at, left = places[0] + 1, len(lines[k]) - len(old) + len(new)
            (folder / f"f{k}").write_text("".join(f"{line}\n" for line in lines[k]))
            head = f"--- f{k}\n+++ f{k}\n@@ -{at},{len(old)} +{at - (not new)},{len(new)} @@"
            hunks += [(k, left, "\n".join([head, *(f"-{x}" for x in old), *(f"+{x}" for x in new)]))]
        text = "".join(f"{hunk}\n" for _, _, hunk in hunks)
        command = ["patch", "-p0", "-F0", "-s", "-f"]
        run = subprocess.run(command, cwd=folder, input=text, text=True, capture_output=True)
        assert run.returncode == 0, run.stdout + run.stderr
        for k, left, _ in hunks:
            path = folder / f"f{k}"
            lines[k] = path.read_text().split("\n")[:-1] if path.exists() else []
            assert len(lines[k]) == left
    return lines


def mutate(file, old, new, other, rng):
    """Yield (kind, blocks) for near misses of the expert's block; some of them are right."""
    lines = file.split("\n")
    at = lines.index(old)
    name, value = old.split("=")
    digit = str(int(rng.integers(1, 10)))
    after = new.split("\n") if new else []
    for line in lines:
        yield "another line", [(line, new)]
        yield "another line of that name", [(line, new.replace(name, line.split("=")[0]))]
        yield "a line lost", [(old, new), (line, "")]
        yield "a line twice", [(old, new), (line, f"{line}\n{line}")]
        yield "another constant too", [(old, new), (line, f"{line.split('=')[0]}={int(line.split('=')[1]) + 1}")]
    for shift in (-10, -1, 1, 2, 10):
        yield "changed constant", [(old, f"{new.rpartition('=')[0]}={int(new.rpartition('=')[2] or 0) + shift}")]
        yield "old constant off", [(f"{name}={int(value) + shift}", new)]
    yield "digit more", [(old, f"{new}{digit}")]
    yield "nothing changed", [(old, old)]
    yield "undone", [(old, new or "x=1"), (new or "x=1", old)]
    yield "applied twice", [(old, new), (old, new)]
    yield "applied to its result", [(old, new), (new, f"{new}\n{new}")]
    yield "old line stays", [(old, "\n".join([old, *after]))]
    yield "old line stays behind", [(old, "\n".join([*after, old]))]
    yield "emptied", [(old, "")]
    yield "new lines in another order", [(old, "\n".join(after[::-1]))]
    for white in (
        f" {new}",
        f"{new} ",
        new.replace("=", " = "),
        f"\t{new}",
        f"{new}\n",
        f"\n{new}",
        new.replace("=", ":"),
    ):
        if new:
            yield "whitespace of the new lines", [(old, white)]
    for white in (f" {old}", f"{old} ", old.replace("=", " = "), old[:-1], old[1:], name, f"{old}{digit}", old.upper()):
        yield "whitespace or letters of the old line", [(white, new)]
    if at:
        yield "context", [(f"{lines[at - 1]}\n{old}", "\n".join([lines[at - 1], *after]))]
        yield "context lost", [(f"{lines[at - 1]}\n{old}", new)]
        yield "moved up", [(f"{lines[at - 1]}\n{old}", "\n".join([*after, lines[at - 1]]))]
        yield "context made up", [(f"{other}=1\n{old}", "\n".join([f"{other}=1", *after]))]
    if at + 1 < len(lines):
        yield "context", [(f"{old}\n{lines[at + 1]}", "\n".join([*after, lines[at + 1]]))]
        yield "context lost", [(f"{old}\n{lines[at + 1]}", new)]
        yield "moved down", [(f"{old}\n{lines[at + 1]}", "\n".join([lines[at + 1], *after]))]
        yield "context with a gap", [(f"{old}\n\n{lines[at + 1]}", "\n".join([*after, lines[at + 1]]))]
    yield "whole file", [(file, "\n".join([*lines[:at], *after, *lines[at + 1 :]]))]
    yield "whole file without a line", [(file, "\n".join([*lines[:at], *after, *lines[at + 2 :]]))]
    yield "another file", [("\n".join(f"{line}{digit}" for line in lines), new)]
    yield "in two steps", [(old, f"{other}=7"), (f"{other}=7", new)]
    yield "by two equal lines", [(old, f"{other}=7\n{other}=7"), (f"{other}=7", ""), (f"{other}=7", new)]
    yield "equal lines filled one by one", [(old, f"{other}=7\n{other}=7"), (f"{other}=7", new), (f"{other}=7", "")]
    yield "in pieces", [(old, f"{other}=7"), *([(f"{other}=7", new)] if int(digit) % 2 else [])]
    if len(after) > 1:
        yield "a part left out", [(old, after[0])]
        yield "a part left out", [(old, after[1])]


@pytest.mark.skipif(shutil.which("patch") is None, reason="GNU patch is not installed")
def test_near_misses_of_an_edit_are_wrong(tmp_path):
    task, cases = Edits(lines=(3, 7), seed=5), []
    for index in range(60):
        problem, prompt, rng = task.problem(index), task[index], np.random.default_rng(index)
        right = follow(problem.file, problem.instruction)
        near = {tuple(blocks): kind for kind, blocks in mutate(problem.file, problem.old, problem.new, "zeta", rng)}
        near[((problem.old, problem.new),)] = "the expert's"
        cases += [(kind, prompt, blocks, right) for blocks, kind in near.items()]
    results = apply_by_patch(tmp_path, [(prompt.info["file"], blocks) for _, prompt, blocks, _ in cases])
    replies = [reply(prompt, "\n".join(write_block(*block) for block in blocks)) for _, prompt, blocks, _ in cases]
    wrong, right_answers, passed, refused, kinds = 0, 0, [], [], Counter()
    for (kind, prompt, blocks, right), result, scores in zip(cases, results, task.scores(replies)):
        is_right = result == right
        full = max(scores["exact"], scores["similarity"]) >= 1
        wrong, right_answers = wrong + (not is_right), right_answers + is_right
        kinds[kind] += not is_right
        passed += [(kind, prompt.key, blocks)] * (full and not is_right)
        refused += [(kind, prompt.key, blocks)] * (is_right and min(scores.values()) < 1)
    assert len([kind for kind, number in kinds.items() if number >= 20]) >= 15, kinds
    assert wrong > 1500 and right_answers > 200
    assert not passed and not refused, (len(passed), passed[:5], len(refused), refused[:5])


def test_text_that_is_almost_a_block_is_refused():
    task = Edits(seed=5)
    for index in range(40):
        prompt, right = task[index], task.demonstrate(index)
        other = write_block("zeta=1", "zeta=2")
        near = [
            *(right[1:], right[:-1], right.replace("=======", "======"), right.replace("\n=======", "")),
            *(right.replace(">>>>>>> ", ">>>>>>>"), right.replace("SEARCH", "REPLACE"), right.replace("\n", " ")),
            *(f"Here:\n{right}", f"{right}\nDone.", f"{right}\n{right.splitlines()[0]}", f"```\n{right}"),
            *(right.replace(" SEARCH", " SEARCH config.ini"), prompt.answer, f"<think>{right}", f"{right}{right}"),
            *(f"{right}\n{other}", f"{other}\n{right}"),
        ]
        for text, scores in zip(near, task.scores([reply(prompt, text) for text in near])):
            assert scores == {"exact": 0.0, "similarity": 0.0, "format": 0.0}, text
        problem = task.problem(index)
        if not problem.new:  # an empty line in place of the new lines deletes as well
            empty = right.replace("=======\n", "=======\n\n")
            assert task.score(reply(prompt, empty))["exact"] == 1
