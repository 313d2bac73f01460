"""The pages show what there is: tables, recipes and commands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import mmrl
from mmrl.__main__ import main
from mmrl.columns import table
from mmrl.commands.cli import CLI
from mmrl.config.compose import CONF, compose, to_lightning
from mmrl.experiments.results import format_table

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))


def commands() -> list[str]:
    """The words of every `mmrl fit` with key=value words in the blocks and tables of the pages."""
    result: list[str] = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
            result += re.findall(r"^(?:\S*/)?mmrl fit ([^#&|>\n]*=[^#&|>\n]*)", block, flags=re.MULTILINE)
        result += re.findall(r"`mmrl fit ([^`]*=[^`]*)`", text)
    named = {f"recipe={file.stem}" for file in (CONF / "recipe").glob("*.yaml")}  # tests of recipes look at these
    return sorted({" ".join(words.split()) for words in result if "--" not in words} - named)


def test_the_data_dictionary_is_current():
    assert (DOCS / "columns.md").read_text().endswith("\n\n" + table())


def test_the_readme_shows_results_as_they_are_stored():
    measured = (DOCS.parent / "README.md").read_text().split("## Measured")[1].split("## Licence")[0]
    rows = [line for line in measured.splitlines() if line.startswith("| `")]
    assert rows and set(rows) <= set(format_table().splitlines())


def test_the_recipe_that_readme_shows_is_the_file():
    text = (DOCS.parent / "README.md").read_text()
    _, name, shown = re.split(r"This is all of `conf/(.+?)`:\n\n```yaml\n", text, maxsplit=1)
    assert shown.split("```")[0] == (CONF / name).read_text()


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    """One block after the other, in a folder with a run of demo_vla."""
    monkeypatch.chdir(tmp_path)
    tiny = {"data": {"num_prompts": 1, "group_size": 2, "evaluation": {"count": 1}}, "trainer": {"max_epochs": 1}}
    mmrl.fit("recipe=demo_vla", "trainer.callbacks.warm_start.stages=null", run_dir="runs/demo", **tiny)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 2 and 0 < names["run"].last_metrics["rollout/reward"] <= 1
    assert names["reward"] == 0 and names["observation"]["image"].dtype == "uint8"


@pytest.mark.parametrize("words", commands())
def test_every_fit_of_the_pages_is_a_run(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "data/push" in words:
        assert main(["data", "record", "sim=push", "num_episodes=1", "out=data/push"]) == 0
    CLI(to_lightning(compose(shlex.split(words))), build=False)
