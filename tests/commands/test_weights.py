"""`mmrl weights`: rows by kind of layer, two runs from one start, and what cannot be compared."""

import json

import pytest
import torch

from mmrl.__main__ import main
from mmrl.commands.results.weights import print_weights
from mmrl.core.errors import ConfigError
from mmrl.runs.checkpoint_file import write_checkpoint


def write(path, state):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint({"state_dict": state, "epoch": 0, "global_step": 0}, path)
    return str(path)


@pytest.fixture
def checkpoints(tmp_path):
    """A start of two layers; one run changes both value matrices, the other one a single entry of the first."""
    torch.manual_seed(0)
    start = {
        f"policy.model.layers.{i}.{kind}.weight": torch.randn(6, 4) for i in (0, 1) for kind in ("q_proj", "v_proj")
    }
    start |= {"policy.model.norm.weight": torch.ones(4), "critic.q_proj.weight": torch.randn(3, 3)}
    first, second = ({name: value.clone() for name, value in start.items()} for _ in range(2))
    for i in (0, 1):
        first[f"policy.model.layers.{i}.v_proj.weight"][:3] += 0.5
    second["policy.model.layers.0.v_proj.weight"][0, 0] += 1.0
    write(tmp_path / "run" / "checkpoints" / "last.ckpt", first)
    return write(tmp_path / "start.ckpt", start), str(tmp_path / "run"), write(tmp_path / "second.ckpt", second)


def test_rows_are_means_over_the_matrices_of_a_kind(checkpoints, tmp_path, capsys):
    start, run, second = checkpoints
    out = tmp_path / "weights.json"
    assert main(["weights", start, run, "rank=2", f"other={second}", f"out={out}"]) == 0
    text, result = capsys.readouterr().out, json.loads(out.read_text())
    kinds = result["kinds"]
    assert list(kinds) == ["q_proj", "v_proj", "all"] and kinds["all"]["matrices"] == 4
    assert kinds["q_proj"]["unchanged"] == 1 and kinds["q_proj"]["overlap"] is None
    assert kinds["v_proj"]["unchanged"] == 0.5 and kinds["all"]["unchanged"] == 0.75
    angles = [each["left"] for name, each in result["matrices"].items() if "v_proj" in name]
    assert kinds["v_proj"]["left"] == kinds["all"]["left"] == max(angles) > 1
    assert result["jaccard"] == pytest.approx(1 / 24) and "of those in one: 0.04167" in text
    assert text.splitlines()[0].split()[:3] == ["kind", "matrices", "unchanged"]


def test_other_policies_and_files_are_refused(checkpoints, tmp_path):
    start, run, _ = checkpoints
    other = write(tmp_path / "other.ckpt", {"policy.model.layers.0.q_proj.weight": torch.randn(5, 4)})
    with pytest.raises(ConfigError, match=r"are of different policies: .* has the shapes \(6, 4\) and (\(5, 4\)|None)"):
        print_weights([start, other])
    empty = write(tmp_path / "empty.ckpt", {"critic.weight": torch.randn(5, 4)})
    with pytest.raises(ConfigError, match="the policy has no weight matrices"):
        print_weights([empty, run])
    with pytest.raises(ConfigError, match="no such file"):
        print_weights([str(tmp_path / "none.ckpt"), run])
    for arguments, message in (([start], "give two checkpoints"), ([start, run, "share=2"], "share=2: must be in")):
        with pytest.raises(ConfigError, match=message):
            print_weights(arguments)
