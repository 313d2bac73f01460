"""Columns of a data set that the loss reads are looked for before a model is built."""

import json

import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError

MARGINS, SOFT = "objective.terms.preference.margins=true", "objective.terms.preference.soft_labels=true"


def words(folder, recipe, *more, **columns):
    rows = [{"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": str(i), **columns} for i in range(20)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    start = "trainer.callbacks.warm_start.stages=null"
    return [f"recipe={recipe}", f"task.path={folder}/pairs.jsonl", start, f"run_dir='{folder}/run'", *more]


@pytest.fixture
def no_model(monkeypatch):
    """A policy that is built fails the test."""

    monkeypatch.setattr(torch.nn.Linear, "__init__", lambda *_, **__: pytest.fail("a model was built"))


@pytest.mark.parametrize(
    "recipe, option, column",
    [("bradley_terry", MARGINS, "margin"), ("bradley_terry", SOFT, "probability"), ("dpo", MARGINS, "margin")],
)
def test_a_missing_column_is_refused_before_a_model_is_built(recipe, option, column, tmp_path, no_model):
    task = ("task=preferences",) if recipe == "dpo" else ()
    with pytest.raises(ConfigError, match=rf"pairs\.jsonl:\d+: the row has no column '{column}', which term 'pref"):
        CLI(to_lightning(compose(words(tmp_path, recipe, *task, option))))


def test_a_column_that_is_there_and_one_that_an_annotator_writes_are_accepted(tmp_path):
    """secrets_rlhf's annotator writes both columns, so that the file needs none."""
    small = ("policy.config.hidden_size=16", "policy.config.intermediate_size=32", "policy.config.num_hidden_layers=1")
    CLI(to_lightning(compose(words(tmp_path, "bradley_terry", MARGINS, *small, margin=0.5))))
    CLI(to_lightning(compose(words(tmp_path, "bradley_terry", *small))))
    CLI(to_lightning(compose(["recipe=secrets_rlhf", "trainer.callbacks.warm_start.stages=null"])))
