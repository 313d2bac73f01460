"""`mmrl show` prints what a run kept; nothing that a policy wrote reaches the terminal as a control character."""

import subprocess
import sys

import pytest
from rich.console import Console

from mmrl.__main__ import main
from mmrl.commands.show import parse, show
from mmrl.core.errors import ConfigError
from mmrl.samples.folder import SampleFolder
from mmrl.samples.terminal import escape_controls, format_group, truncate
from tests.hostile import HOSTILE

TURN = {"tokens": ["2", "<eos>"], "chosen": [1, 1], "logprobs": [-0.5, -0.1], "advantages": [1.5, 1.5]}


def group(number=0, **more):
    episodes = [
        {"sample_index": 0, "ended": "done", "reward": 1.0, "scores": {"exact": 1.0}, "output": "2", "turns": [TURN]},
        {"sample_index": 1, "ended": "length", "reward": 0.0, "scores": {"exact": 0.0}, "output": "x", "turns": []},
    ]
    messages = [{"role": "user", "content": "1+1="}]
    row = {"group": number, "key": f"sums/train/{number}", "messages": messages, "images": [], "answer": 2}
    return {**row, "score_name": "exact", "group_size": 2, "episodes": episodes, **more}


@pytest.fixture
def run(tmp_path):
    folder = SampleFolder(tmp_path)
    folder.write(0, [group(0)])
    folder.write(7, [group(0), group(1)])
    return str(tmp_path)


def test_the_newest_iteration_is_shown(run, capsys):
    assert main(["show", run]) == 0
    out = capsys.readouterr().out
    assert "iteration 7, 2 of 2 groups; 2 iterations from 0 to 7 have samples" in out
    assert (
        "group 1  sums/train/1  answer 2\nuser: 1+1=\n  [0] reward 1  advantage +1.5  exact 1  2 tokens  done\n" in out
    )
    assert "      2<eos>\n" in out and "\x1b" not in out  # no colours in a pipe


def test_failures_sorting_and_numbers(run):
    (only,) = show([run, "0", "failures"])
    assert [episode["sample_index"] for episode in only["episodes"]] == [1]
    assert [episode["reward"] for episode in show([run, "sort=reward", "groups=1"])[0]["episodes"]] == [0, 1]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["3"], r"3\.jsonl: no such file; iterations with samples are: 0, 7"),
        (["sort=luck"], "sort=luck: must be reward, length"),
        (["groups=0"], "groups=0: must be a whole number of at least 1"),
        (["max_chars=x"], "max_chars=x: must be"),
        (["failures=maybe"], "failures=maybe: must be true or false"),
        (["colour=red"], "give the folder of one run"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments, message, run):
    with pytest.raises(ConfigError, match=message):
        show([run, *arguments])


def test_a_folder_without_samples_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="has no samples"):
        show([str(tmp_path)])
    with pytest.raises(ConfigError, match="give the folder of one run"):
        parse([str(tmp_path / "nothing")])


def test_colours_follow_the_advantage():
    console = Console(force_terminal=True, color_system="standard", width=200)
    with console.capture() as capture:
        console.print(format_group(group()))
    assert "\x1b[1;32m2\x1b[0m" in capture.get()  # bold green: an advantage of at least 1


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_hold_no_control_characters(text):
    episode = {**group()["episodes"][0], "output": text, "turns": [{**TURN, "tokens": [text, text]}], "error": text}
    episode["calls"] = [{"name": text, "arguments": {text: text}, "outcome": text, "result": text}]
    hostile = group(messages=[{"role": text, "content": text}], answer=text, key=text, episodes=[episode])
    shown = format_group(hostile, 0).plain
    assert all(character in "\n\t\u200c\u200d" or character.isprintable() for character in shown)
    console = Console(width=200, markup=False)
    with console.capture() as capture:
        console.print(format_group(hostile, 0))
    assert "\x1b" not in capture.get()


def test_escapes_are_readable():
    assert escape_controls("a\x1b[31m\u202eb\r\x07\n\tç") == "a\\x1b[31m\\u202eb\\r\\x07\n\tç"


def test_long_texts_lose_their_middle():
    assert truncate("a" * 50 + "b" * 50, 20) == "a" * 10 + " [... 80 characters ...] " + "b" * 10
    assert truncate("a" * 50, 0) == "a" * 50
    turn = {"tokens": ["word "] * 100, "chosen": [1] * 100}
    text = format_group(group(episodes=[{**group()["episodes"][0], "turns": [turn]}]), 50).plain
    assert "word word word word word  [... 90 tokens ...] word" in text


def test_the_command_imports_no_torch(run):
    code = f"import sys; from mmrl.__main__ import main; main(['show', {run!r}]); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
