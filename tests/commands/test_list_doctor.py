import pytest

from mmrl.__main__ import main
from mmrl.commands.catalogue import PARTS, classes, entries, overview, plural
from mmrl.config.compose import CONF, groups


def test_overview_counts_every_group(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    rows = dict(overview())
    for name, options in groups().items():
        assert rows[plural(name)].startswith(f"{len(options)}: ")
        assert plural(name) in shown
    assert set(map(plural, PARTS)) <= set(rows)


@pytest.mark.parametrize("name", ["recipe", "task", "sim", "engine", "rollout", "curriculum", *PARTS])
def test_every_option_has_one_line_of_meaning(name):
    rows = entries(name)
    assert rows and rows == entries(plural(name))
    assert [option for option, meaning in rows if not meaning.strip() or "\n" in meaning] == []


def test_a_recipe_is_shown_with_its_paper():
    assert dict(entries("recipes"))["dr_grpo"].startswith("Understanding R1-Zero-Like Training")
    assert "(2025)" in dict(entries("recipes"))["dr_grpo"] and "[exact]" in dict(entries("recipes"))["dr_grpo"]


def test_parts_are_concrete_and_stand_where_they_are_named():
    names = {part.__qualname__ for part in classes("annotator")}
    assert {"GAE", "GroupAdvantage"} <= names and "Annotator" not in names


def test_piped_output_has_no_colours_and_no_cut_lines(capsys):
    assert main(["list", "annotators"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "…" not in shown


def test_unknown_group_is_refused_with_a_suggestion(capsys):
    assert main(["list", "polices"]) == 2
    assert "Did you mean 'policies'?" in capsys.readouterr().err


def test_doctor_reports_and_agrees_to_run(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in ("python", "torch", "lightning", "mujoco", "images by ray", "images by egl", "ffmpeg", str(CONF)):
        assert word in shown


def test_doctor_takes_no_words(capsys):
    assert main(["doctor", "now"]) == 2
    assert "takes no arguments" in capsys.readouterr().err
