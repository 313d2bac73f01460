"""Folders that no type of transformers stands for are refused by name, and their code is never run."""

import json
import shutil

import pytest

from mmrl.policies.text.policy import TextPolicy
from scripts.model_sweep.checkpoints import build_checkpoint

CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
MAP = {"AutoConfig": "code.OwnConfig", "AutoModelForCausalLM": "code.OwnModel"}
CHANGES = {
    "own code": ({"model_type": "own", "auto_map": MAP}, "contains custom code"),
    "renamed": ({"model_type": "qwen3_moe_v9"}, "does not recognize this architecture"),
    "no type": ({"model_type": None}, "cannot be loaded"),
    "another type": (
        {"model_type": "mixtral"},
        "it was saved by Qwen3MoeForCausalLM, and MixtralForCausalLM is loaded",
    ),
    "unknown layers": ({"layer_types": ["full_attention", "wave_attention"]}, "layer_type"),
    "more experts": ({"num_local_experts": 8}, "are not those of config.json, the first of them .*experts"),
    "too few experts": ({"num_experts_per_tok": 9}, "selected index k out of range"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoint") / "moe"
    build_checkpoint("qwen3_moe", "text", place)
    return place


def change(folder, place, values):
    shutil.copytree(folder, place)
    config = json.loads((place / "config.json").read_text()) | values
    (place / "config.json").write_text(json.dumps({name: each for name, each in config.items() if each is not None}))
    (place / "code.py").write_text(CODE)
    return str(place)


@pytest.mark.parametrize("name", CHANGES)
def test_what_no_type_stands_for_is_refused(name, folder, tmp_path):
    values, message = CHANGES[name]
    path = change(folder, tmp_path / "own", values)
    with pytest.raises(ValueError, match=message):
        TextPolicy(path=path)
    assert not (tmp_path / "own" / "ran").exists()


def test_a_known_type_loads_the_class_of_transformers(folder, tmp_path):
    path = change(folder, tmp_path / "own", {"auto_map": MAP})
    assert type(TextPolicy(path=path).model).__module__.startswith("transformers.models.qwen3_moe")
    assert not (tmp_path / "own" / "ran").exists()
