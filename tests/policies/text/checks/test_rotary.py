"""Configurations whose rotary positions are no positions."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig

from mmrl.files.pretrained import build_pretrained
from mmrl.policies.text.checks.rotary import check_rotary
from mmrl.policies.text.policy import TextPolicy
from tests.malformed.files.policies import SMALL, text_policy

WRONG = {
    "a base of 0": {"rope_theta": 0.0},
    "a negative base": {"rope_theta": -5.0},
    "a base of 0 among the parameters": {"rope_parameters": {"rope_type": "default", "rope_theta": 0.0}},
    "a factor of 0": {"rope_scaling": {"rope_type": "linear", "factor": 0.0}},
    "a negative factor": {"rope_scaling": {"rope_type": "linear", "factor": -2.0}},
    "an odd head": {"head_dim": 3},
    "a head of 1": {"head_dim": 1},
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_refused(name):
    with pytest.raises(ValueError, match=r"policy\.config.*(rope_|head_dim).*change"):
        TextPolicy(config={"model_type": "qwen2", **SMALL, **WRONG[name]})


def test_a_checkpoint_that_says_so_is_refused_by_its_path(tmp_path):
    text_policy().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = -5.0
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"policy\.path=.*rotary frequencies inv_freq.*nan"):
        TextPolicy(str(tmp_path))


def test_why_it_is_refused():
    """Without the check the model computes finite numbers, and tokens know nothing of those before them."""
    model = text_policy().model
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq"):
            buffer.fill_(torch.nan)
    with torch.no_grad():
        first, second = (model(input_ids=torch.tensor([[token, 7]])).logits[0, -1] for token in (3, 9))
    assert first.isfinite().all() and torch.equal(first, second)
    with pytest.raises(ValueError, match="inv_freq"):
        check_rotary(model)


def test_usual_scalings_and_several_frequencies_are_right():
    for scaling in ({"rope_type": "linear", "factor": 4.0}, {"rope_type": "dynamic", "factor": 2.0}):
        TextPolicy(config={"model_type": "qwen2", **SMALL, "rope_scaling": scaling})
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Gemma3TextConfig(**sizes, num_key_value_heads=1, head_dim=8, vocab_size=32)
    assert check_rotary(build_pretrained(AutoModelForCausalLM, config)).__class__ is Gemma3ForCausalLM
