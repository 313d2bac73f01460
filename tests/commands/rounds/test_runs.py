"""Rounds of a policy with a path: which weights each stage has, and rows that are scored anew."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmrl.commands.rounds.rows import read_rows
from mmrl.runs.checkpoint_file import read_checkpoint
from tests.checkpoints import qwen2
from tests.commands.rounds.tiny import FIT, run_rounds, write_file
from tests.runs.processes import start

FOLDER_POLICY = ["task=arithmetic", "policy=text", "data.sampling.max_tokens=4", "trainer.accelerator=cpu"]
TRAIN = {"kind": "fit", "reads": "keep", "overrides": [*FIT, "trainer.max_epochs=1"]}
STAGES = {
    "grow": {"kind": "sample", "count": 4, "num_samples": 2},
    "same": {"kind": "score", "reads": "grow"},
    "other": {"kind": "score", "reads": "grow", "overrides": ["data.reward.weights={exact: 2.0}"]},
    "keep": {"kind": "filter", "reads": ["same", "other"], "cut": True},
    "improve": TRAIN,
    "anew": {**TRAIN, "weights": "base"},
    "first": {**TRAIN, "weights": "improve@1"},
    "measure": {"kind": "evaluate", "count": 3, "weights": "anew"},
}


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """Two rounds from a checkpoint folder; returns their folder and the checkpoint's."""
    place = tmp_path_factory.mktemp("rounds")
    model = qwen2(place / "model")
    file = write_file(place / "mine.yaml", rounds=2, common=[*FOLDER_POLICY, f"policy.path={model}"], stages=STAGES)
    process = start(run_rounds, [str(file), f"run_dir={place / 'my run'}"], place / "log")
    process.join(300)
    assert process.exitcode == 0, (place / "log").read_text()[-3000:]
    return place / "my run", Path(model)


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """The weights of the network in a checkpoint, by the names of transformers."""
    state = read_checkpoint(folder / "checkpoints" / f"{name}.ckpt")["state_dict"]
    return {key.removeprefix("policy.").removeprefix("model."): value for key, value in state.items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    names = one.keys() & other.keys()
    assert len(names) > 10
    return all(torch.equal(one[name], other[name]) for name in names)


def test_stages_start_from_the_base_the_newest_weights_or_those_of_a_round(rounds):
    folder, model = rounds
    base = load_file(model / "model.safetensors")
    assert equal(weights(folder / "1/improve", "start"), base)
    assert not equal(weights(folder / "1/improve", "last"), base)
    assert equal(weights(folder / "1/anew", "start"), base) and equal(weights(folder / "2/anew", "start"), base)
    assert equal(weights(folder / "2/first", "start"), weights(folder / "1/improve", "last"))
    assert equal(weights(folder / "2/improve", "start"), weights(folder / "1/first", "last"))


def test_the_policy_of_a_stage_is_a_model_of_transformers(rounds):
    """The untouched library reads the last fit's folder, with the weights of its checkpoint."""
    from transformers import AutoModelForCausalLM

    folder, _ = rounds
    model = AutoModelForCausalLM.from_pretrained(folder / "2/first/policy")
    assert equal(dict(model.state_dict()), weights(folder / "2/first", "last"))


def test_rows_scored_with_the_same_reward_are_the_same_and_with_another_differ_in_the_reward(rounds):
    folder, _ = rounds
    assert (folder / "1/same/rows.jsonl").read_bytes() == (folder / "1/grow/rows.jsonl").read_bytes()
    grow, other = (read_rows(folder / f"1/{name}/rows.jsonl") for name in ("grow", "other"))
    assert [{**row, "reward": 2 * row["scores"]["exact"]} for row in grow] == other
    assert len(grow) == 8 and [row["index"] for row in grow] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(read_rows(folder / "1/keep/rows.jsonl")) == 16


def test_draws_differ_between_samples_and_rounds(rounds):
    folder, _ = rounds
    first, second = ([row["completion"] for row in read_rows(folder / f"{n}/grow/rows.jsonl")] for n in (1, 2))
    assert first != second and first[::2] != first[1::2]


def test_evaluations_are_those_of_the_stage_that_they_name(rounds):
    folder, _ = rounds
    result = json.loads((folder / "2/measure/evaluation.json").read_text())
    assert (
        result["checkpoints"]["last"]["path"] == str(folder / "2/anew/checkpoints/last.ckpt") and result["count"] == 3
    )
    table = (folder / "table.csv").read_text().splitlines()
    assert len(table) == 17 and table[0].startswith("round,stage,kind,weights,rows")
