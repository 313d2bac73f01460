"""Malformed command lines: each ends with a short message that names the place and a remedy, and nothing is trained.

The tables hold what is typed and what the message must name; a message has at most 12 lines and no traceback.
"""

from __future__ import annotations

import logging
import re
import signal
from pathlib import Path

import pytest
import torch

from mmrl.__main__ import main
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.malformed import table_commands, table_data, table_keys, table_values, table_yaml

BASE = (
    *("recipe=grpo", "task=arithmetic", "policy=tiny_text", "trainer.callbacks.warm_start.stages=null"),
    *("trainer.max_epochs=1", "trainer.logger=false", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false"),
    *("trainer.callbacks.progress=null", "data.evaluation.count=2", "data.num_prompts=2"),
)
"""A run of a second; a row's own words replace those with the same key."""
SECONDS = 60
"""A refusal takes a second or two on an idle core; hanging is what is looked for."""
QUICK = [*table_keys.WORDS, *table_keys.OPTIONS]
"""Refused before anything is composed, most of them."""
COMPOSED = [
    row
    for table, names in (
        (table_keys, ("KEYS", "CLASSES")),
        (table_values, ("RUN", "TRAINER", "OPTIMIZER", "SAMPLING")),
        (table_data, ("DATA", "OBJECTIVE", "POLICY", "SIMS")),
    )
    for name in names
    for row in getattr(table, name)
]
"""Half a second to two seconds each: every fourth of them is looked at always, the others are marked slow."""
FIT = [*QUICK, *COMPOSED]
COMMANDS = [*table_commands.EVALUATE, *table_commands.DATA_COMMAND, *table_commands.OTHERS]
VALID = (
    "seed=4294967295",
    "run_dir=RUN/lr=1e-4",
    "run_dir=RUN/ünï",
    "run_dir='RUN/a b, c'",
    "trainer.max_epochs=0",
    "trainer.max_epochs=-1 scheduler=constant",
    "trainer.gradient_clip_val=null",
    "trainer.callbacks=null",
    "trainer.callbacks.checkpoint=null trainer.callbacks.last.every_n_epochs=50",
    "trainer.callbacks.checkpoint.every_n_epochs=1",
    "trainer.callbacks.last.every_n_epochs=50",
    "optimizer.lr=0",
    "optimizer.lr=0.5 optimizer.lr=0.25",
    "optimizer._target_=torch.optim.SGD optimizer.momentum=0.9",
    "scheduler._target_=torch.optim.lr_scheduler.CosineAnnealingLR scheduler.T_max=100",
    "reward._target_=mmrl.rewards.models.learned.ClassifierReward reward.path=FOLDER",
    "weighting._target_=mmrl.objectives.weighting.ConstantLength weighting.length=8",
    "sampling.max_tokens=2000",
    "sampling.stop=[a,b]",
    "data=async data.staleness=2",
    "data.evaluation=null",
    "data.parity=null",
    "~data.parity=null",
    "objective.terms.policy.clip_high=0.28 objective.coefficients={policy: 2}",
    "policy.lora={r: 4}",
    "recipe=ppo_control sim.id=CartPole-v1",
)
"""Command lines that look odd and are right."""


@pytest.fixture(autouse=True)
def silence(monkeypatch, tmp_path):
    """Lightning's log handler keeps the error stream of the first test; what is written by mistake goes to tmp_path."""
    logging.disable(logging.CRITICAL)
    monkeypatch.chdir(tmp_path)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def configuration() -> str:
    """A valid config.yaml, whose run_dir is RUN."""
    return CLI(to_lightning(compose([*BASE, "run_dir=RUN"])), build=False).to_yaml()


@pytest.fixture
def run(configuration, tmp_path) -> Path:
    """The folder of a run with a configuration and a checkpoint without weights."""
    folder = tmp_path / "finished"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(configuration.replace("RUN", str(tmp_path / "new")))
    torch.save({"state_dict": {}}, folder / "checkpoints" / "last.ckpt")
    return folder


def cut(words: str | tuple[str, ...]) -> list[str]:
    """The words of a row: a text is cut before every key=."""
    return list(words) if isinstance(words, tuple) else re.split(r" (?=[\w./]+=)", words)


def _param(number: int, row: table_keys.Row) -> object:
    slow = () if number < len(QUICK) or (number - len(QUICK)) % 4 == 0 else pytest.mark.slow
    return pytest.param(*row, id=str(row[0])[:80], marks=slow)


def with_base(words: list[str], folder: Path) -> list[str]:
    """A row's words with those of BASE that it does not replace; another recipe brings its own task and policy."""
    given = {word.split("=")[0] for word in words}
    if "recipe" in given:
        given |= {"task", "policy"}
    where = [] if "run_dir" in given else [f"run_dir='{folder}'"]
    return [*(word for word in BASE if word.split("=")[0] not in given), *words, *where]


def refused(argv: list[str], key: str, remedy: str, capsys, folder: Path) -> None:
    """Run the command and look at how it ends."""

    def stop(*_):
        raise TimeoutError(f"{argv} takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        status = main(argv)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    output = capsys.readouterr().err
    assert status in (1, 2), output
    assert len(output.strip().splitlines()) <= 12 and "Traceback" not in output, output
    message = output.strip().splitlines()[-1]
    assert message.startswith("mmrl"), output
    assert key in message and remedy in message, f"{message!r} lacks {key!r} or {remedy!r}"
    assert len(message) < 1200, message
    left = [*folder.glob("checkpoints/*"), *folder.glob("policy/*"), *folder.glob("metrics.csv")]
    assert not [file for file in left if file.name != "start.ckpt"]  # which is saved before the first step


@pytest.mark.parametrize(("words", "key", "remedy"), [_param(number, row) for number, row in enumerate(FIT)])
def test_fit_refuses(words, key, remedy, capsys, tmp_path):
    folder = tmp_path / "new"
    refused(["fit", *with_base(cut(words), folder)], key, remedy, capsys, folder)


@pytest.mark.parametrize(("words", "key", "remedy"), COMMANDS, ids=[str(row[0])[:80] for row in COMMANDS])
def test_other_commands_refuse(words, key, remedy, capsys, run, tmp_path):
    (*most, last) = [words] if isinstance(words, str) else words
    parts = [part for text in (*most, last) for part in text.split(" ")]
    argv = [re.sub(r"(^|=)RUN$", rf"\1{run}", part).replace("=OUT", f"={tmp_path}/out") for part in parts]
    refused(argv, key, remedy, capsys, tmp_path / "new")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "old", "new", "key", "remedy"), table_yaml.FILES, ids=[r[0] for r in table_yaml.FILES]
)
def test_fit_refuses_a_file(name, old, new, key, remedy, capsys, run, tmp_path):
    file = run / "config.yaml"
    text = file.read_text()
    assert old is None or old in text
    file.write_text(new if old is None else text.replace(old, new, 1))
    refused(["fit", "--config", str(file)], key, remedy, capsys, tmp_path / "new")
    if name in table_yaml.EVALUATED:
        refused(["evaluate", str(run)], key, remedy, capsys, tmp_path / "new")


@pytest.mark.parametrize(("words", "key", "remedy"), table_yaml.WORDS, ids=[row[0] for row in table_yaml.WORDS])
def test_fit_refuses_words_beside_a_file(words, key, remedy, capsys, run, tmp_path):
    argv = ["fit", *(part.replace("CONFIG", str(run / "config.yaml")) for part in words.split(" "))]
    refused(argv, key, remedy, capsys, tmp_path / "new")


@pytest.mark.parametrize("words", VALID)
def test_what_looks_odd_and_is_right_is_accepted(words, tmp_path):
    chosen = [word.replace("RUN", str(tmp_path)) for word in cut(words)]
    cli = CLI(to_lightning(compose(with_base(chosen, tmp_path / "new"))), build=False)
    assert cli.to_yaml()


def test_there_are_enough_of_them():
    rows = [*FIT, *COMMANDS, *table_yaml.FILES, *table_yaml.WORDS]
    always = [*QUICK, *COMPOSED[::4], *COMMANDS, *table_yaml.FILES, *table_yaml.WORDS]
    assert len(rows) >= 500 and len(always) >= 280 and len(VALID) >= 20
    assert len({str(row[:3]) for row in rows}) == len(rows)
