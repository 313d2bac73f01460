import pytest

from mmrl.__main__ import main
from mmrl.commands.catalogue.listing import PARTS, classes, entries, overview, plural
from mmrl.commands.doctor import machine
from mmrl.config.compose import CONF, groups
from mmrl.config.option_files import find_rewards


def test_overview_counts_every_group(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    rows = dict(overview())
    for name, options in groups().items():
        assert rows[plural(name)].startswith(f"{len(options)}: ")
        assert plural(name) in shown
    assert set(map(plural, PARTS)) <= set(rows)
    assert rows["rewards"].startswith(f"{len(classes('reward')) + len(find_rewards())}: agent, ")


@pytest.mark.parametrize(
    "name", ["recipe", "method", "setting", "start", "task", "sim", "engine", "rollout", "curriculum", *PARTS]
)
def test_every_option_has_one_line_of_meaning(name):
    rows = entries(name)
    assert rows and rows == entries(plural(name))
    assert [option for option, meaning in rows if not meaning.strip() or "\n" in meaning] == []


@pytest.mark.parametrize(
    "arguments",
    [[], ["annotators"], ["policies"], ["recipes"], ["recipes", "grpo"], ["methods"], ["settings"], ["starts", "sums"]],
    ids=str,
)
def test_output_has_100_columns_at_most_and_no_colours_in_a_pipe(arguments, capsys):
    assert main(["list", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "…" not in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_what_is_listed_is_public_and_stands_under_its_own_theme(capsys):
    for part in PARTS:
        assert main(["list", plural(part)]) == 0
        names = [
            line.split()[0].rpartition(".")[2] for line in capsys.readouterr().out.splitlines() if line[:1].strip()
        ]
        assert names and not [name for name in names if name.startswith("_")], part
    assert main(["list", "recipes", "rlcm"]) == 0
    assert "without language" not in capsys.readouterr().out  # its policy reads instructions


def test_unknown_group_is_refused_with_a_suggestion(capsys):
    assert main(["list", "polices"]) == 2
    assert "Did you mean 'policies'?" in capsys.readouterr().err


def test_doctor_reports_and_agrees_to_run(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in ("python", "torch", "lightning", "mujoco", "images by ray", "images by egl", "ffmpeg", str(CONF)):
        assert word in shown
    for group in ("method", "setting", "recipe", "start"):
        assert f"{len(groups()[group])} {group}s" in " ".join(shown.split())


def test_doctor_refuses_words_that_are_none_of_a_run(capsys):
    assert main(["doctor", "now"]) == 2
    assert "now" in capsys.readouterr().err


@pytest.mark.parametrize("own", [False, True])
def test_doctor_tells_when_the_other_project_of_that_name_is_installed(tmp_path, monkeypatch, own):
    info = tmp_path / "mmrl-0.1.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mmrl\nVersion: 0.1.7\nSummary: Market making\n")
    (info / "entry_points.txt").write_text(
        f"[console_scripts]\nmmrl = {'mmrl.__main__:main' if own else 'mmrl.cli:run'}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = list(machine._stranger())
    assert len(found) == (0 if own else 1)
    assert own or ("0.1.7 is another project (Market making)" in found[0].found and not found[0].good)
