"""The pages show what there is: tables, recipes and commands; the how-to guides are executed block by block."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from transformers import MixtralConfig

import mmrl
from mmrl.__main__ import main
from mmrl.config.compose import CONF, compose
from mmrl.experiments.columns_page import render_page
from mmrl.experiments.results import format_table
from tests.parsed_words import check_words
from tests.quick_python import quick_python
from tests.tasks.browser.installed import require_browser
from tests.test_recipes import SMALL, shrink

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
HOW_TO = sorted((DOCS / "how-to").rglob("*.md"))
PAGES = (ROOT / "README.md", *sorted(set(DOCS.rglob("*.md")) - set(HOW_TO)))
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def fits(words: str) -> list[str]:
    """The words of a `mmrl fit` without its comment."""
    return shlex.split(words, comments=True)


def commands() -> list[str]:
    """The words of every `mmrl fit` with key=value words in the blocks and tables of the pages."""
    result: list[str] = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
            result += re.findall(r"^(?:\S*/)?mmrl fit ([^#&|>\n]*=[^#&|>\n]*)", block, flags=re.MULTILINE)
        result += re.findall(r"`mmrl fit ([^`]*=[^`]*)`", text)
    named = {f"recipe={file.stem}" for file in (CONF / "recipe").rglob("*.yaml")}  # tests of recipes look at these
    return sorted({" ".join(words.split()) for words in result if "--" not in words} - named)


def test_the_data_dictionary_is_current():
    """Where this fails: python scripts/paper_index.py."""
    assert (DOCS / "columns.md").read_text() == render_page()


def test_the_readme_shows_results_as_they_are_stored():
    measured = (ROOT / "README.md").read_text().split("\n## Measured")[1].split("\n## ")[0]
    rows = [line for line in measured.splitlines() if line.startswith("| `")]
    assert rows and set(rows) <= set(format_table().splitlines())


def test_the_recipe_that_readme_shows_is_the_file():
    text = (ROOT / "README.md").read_text()
    blocks = dict(re.findall(r"This is all of `conf/(.+?)`:\n\n```yaml\n(.*?)```", text, flags=re.DOTALL))
    assert {name.split("/")[0] for name in blocks} == {"method", "recipe"}
    assert all(shown == (CONF / name).read_text() for name, shown in blocks.items())


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
    if "reward=rewards.py:score" in words:
        Path("rewards.py").write_text("def score(completion):\n    return 0\n")
    check_words(fits(words))


class Guide:
    """Executes the blocks of a how-to guide in one folder: its first `mmrl fit` without a checkpoint at a tiny size,
    the others up to the typed configuration, everything else as it stands but for the number of recorded episodes."""

    def __init__(self) -> None:
        self.fitted = False
        self.server: subprocess.Popen[str] | None = None
        self.names: dict[str, object] = {}

    def run(self, language: str, title: str, text: str) -> None:
        if title.startswith("conf/") and (ROOT / title).exists():
            assert text == (ROOT / title).read_text(), f"{title} is not what the page shows"
        elif title:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(text)
        elif language == "python":
            exec(compile(text, "block", "exec"), self.names)
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                words = fits(line)
                if words:
                    self._command(words)
        else:
            raise AssertionError(f"a block of {language} without a title is not executed")

    def _command(self, words: list[str]) -> None:
        words = list(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words))  # variables of a script
        program, *rest = words
        if program == "mmrl" and rest[0] == "doctor" and len(rest) > 1:  # would start processes
            check_words(rest[1:])
        elif program.startswith("scripts/launch/"):
            assert (ROOT / program).is_file()
            check_words(rest)
        elif program == "mmrl" and rest[0] == "serve" and "--help" not in rest:
            self._serve(rest)
        elif program == "mmrl" and rest[0] == "fit" and "--config" not in rest:
            self._fit(rest[1:])
        elif program == "mmrl" and rest[0] == "rounds":  # a process for each stage
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "executable", quick_python())
                patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
                assert main(rest) == 0
        elif program == "mmrl":
            assert main([re.sub(r"^num_episodes=.*", "num_episodes=2", word) for word in rest]) == 0, words
        elif program == "python" and rest[0] == "-m":
            assert importlib.util.find_spec(rest[1]), words
        elif program == "python":
            assert rest[0].startswith("scripts/") and (ROOT / rest[0]).is_file(), words
        elif program == "make":
            assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), words
        else:
            assert words == ["export", "PYTHONPATH=$PWD"] or program in ("pip", "tensorboard"), words

    def _serve(self, words: list[str]) -> None:
        """Start the server as a process of its own, which `close` ends."""
        pytest.importorskip("msgpack")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [quick_python(), "-P", "-m", "mmrl", *words]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.server.stdout is not None and "serving at" in self.server.stdout.readline()

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            assert self.server.wait(20) == 0

    def _fit(self, words: list[str]) -> None:
        if words[0] == "--multirun":  # the first run of a sweep is composed
            words = [word.partition(",")[0] for word in words[1:]]
        if self.fitted or compose(words).choices.policy not in SMALL:
            check_words(words)
            return
        folder = next((word.partition("=")[2] for word in words if word.startswith("run_dir=")), "runs/first")
        assert main(["fit", *shrink(tuple(words), folder)]) == 0, words
        self.fitted = True


def check_plan(printed: str, shown: str) -> None:
    """Words are equal; numbers are within 5 %, since other versions of torch save other tensors for backward."""
    number = r"[\d,]*\.?\d+"
    for line, expected in zip(printed.splitlines(), shown.splitlines(), strict=True):
        assert re.sub(rf"\s*{number}", " N", line) == re.sub(rf"\s*{number}", " N", expected)
        for found, stated in zip(re.findall(number, line), re.findall(number, expected), strict=True):
            assert float(found.replace(",", "")) == pytest.approx(float(stated.replace(",", "")), rel=0.05, abs=0.2)


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_every_block_of_a_how_to_guide_works(page, tmp_path, monkeypatch, capsys):
    """A file plan.txt is what the command before it prints; MODEL has the configuration of a checkpoint of experts."""
    if page.stem == "browser":
        require_browser()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    MixtralConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=1).save_pretrained("MODEL")
    blocks = FENCE.findall(page.read_text())
    assert len(blocks) == page.read_text().count("\n```") / 2
    guide, printed = Guide(), ""
    try:
        for language, options, text in blocks:
            title = re.search(r'title="(.+?)"', options)
            guide.run(language, title[1] if title else "", text)
            printed = capsys.readouterr().out if language == "sh" else printed
            if title and title[1] == "plan.txt":
                check_plan(printed, text)
    finally:
        guide.close()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[name]


@pytest.mark.parametrize("page", ["security.md", "evaluation.md", "how-to/runs.md"])
def test_pages_say_the_same_about_trust(page):
    """One statement about files of others stands in every page that speaks of them, word by word."""
    security = " ".join((DOCS / "security.md").read_text().split())
    statement = re.search(r"A `config\.yaml` of another person runs .*? Everything else is refused\.", security)
    assert statement is not None and "without `trust=true` on the command line" in statement[0]
    assert statement[0] in " ".join((DOCS / page).read_text().split())


@pytest.mark.parametrize("room", ["mmrl/config/code", "mmrl/files/pretrained.py", "mmrl/media", "mmrl/datasets/hdf5"])
def test_refusals_of_files_of_others_have_their_line(room):
    assert f"`{room}`" in (DOCS / "errors.md").read_text() and (ROOT / room).exists()
