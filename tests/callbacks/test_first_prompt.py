"""The first prompt of a run is printed once, as the model reads it, with a completion, its answer and its scores."""

import json
import re

import pytest

from mmrl.callbacks.first_prompt import FirstPrompt, _indent
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.test_recipes import shrink


def fit(capsys, folder, *words):
    CLI(to_lightning(compose([*shrink(words, folder)]))).fit()
    return capsys.readouterr().out


def test_a_run_prints_prompt_completion_answer_and_scores(tmp_path, capsys):
    rows = [{"question": f"{i} apples?", "answer": i} for i in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = ("task=dataset", f"task.path={tmp_path}/a.jsonl", "task.extract=last_number", "task.system=Count.")
    out = fit(capsys, tmp_path / "run", "recipe=grpo", *task, "trainer.max_epochs=2")
    assert out.count("first prompt (") == 1
    found = re.search(
        r"first prompt \(.*a\.jsonl:\d+\), (\d+) tokens:\n((?:  \| .*\n)+)a completion of it, (\d+) tokens, ended by "
        r"(done|length):\n(?:  \| .*\n)+extracted answer: (none \(task\.extract\)|'.*')\nright answer: '(\d+)'\n"
        r"scores: format [01], exact [01]; reward [01]\n",
        out,
    )
    assert found, out[:2000]
    assert f"Count.{found[6]} apples?" in found[2].replace("\n  | ", "").replace("  | ", "")


def test_a_simulator_has_no_prompt_to_print(tmp_path, capsys):
    assert "first prompt" not in fit(capsys, tmp_path, "recipe=ppo_control", "trainer.max_epochs=1")


def test_long_texts_are_cut_images_counted_and_control_characters_written_out():
    assert _indent("a<image><image><image><image><image>b", 100) == "  | a<image> (x 5)b"
    assert _indent("x" * 50 + "y" * 50, 10) == "  | xxxxx [... 90 characters ...] yyyyy"
    assert _indent("a\x1b[2Jb\nc", 100) == "  | a\\x1b[2Jb\n  | c"
    with pytest.raises(ValueError, match=r"first_prompt\.max_characters must be at least 2, got 1"):
        FirstPrompt(1)
