"""A configuration whose options were composed before is the one that Hydra composes at once."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from mmrl.config.compose import to_hydra_overrides
from mmrl.config.option_files import CONF
from mmrl.config.overrides import compose_overrides
from mmrl.config.short_names import search_path

CHOSEN = (
    ("recipe=grpo", "data.num_prompts=4", "run_dir='a b=c'"),
    ("recipe=dapo", "policy=tiny_vlm", "engine=null", "seed=3", "trainer.callbacks.progress=null"),
    ("recipe=sac", "model.objective={_target_: x, list: [1, '2', ${seed}]}", "data.replay.capacity=100"),
    ("recipe=flow_sde_grpo", "policy.chain.steps=4", "policy.chain.steps=5", "data.new.key={a: {b: null}}"),
)


@pytest.mark.parametrize("arguments", CHOSEN, ids=lambda arguments: arguments[0])
def test_values_are_set_as_hydra_sets_them(arguments):
    overrides = to_hydra_overrides(arguments)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        expected = compose("config", overrides=[search_path(), *overrides], return_hydra_config=True)
    for _ in range(2):  # composed, and from what is cached
        actual = compose_overrides(overrides)
        assert actual.hydra.runtime.choices == expected.hydra.runtime.choices
        one, other = (OmegaConf.to_container(cfg) for cfg in (actual, expected))
        assert one.pop("hydra") and other.pop("hydra") and one == other and str(one) == str(other)
        actual.data.num_prompts = 77  # a change of one is none of the next


def test_a_file_that_changes_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "conf" / "recipe" / "mine.yaml"
    file.parent.mkdir(parents=True)
    for number in (5, 66):
        file.write_text(f"# @package _global_\ndefaults: [grpo, _self_]\ndata: {{num_prompts: {number}}}\n")
        assert compose_overrides(["recipe=mine"]).data.num_prompts == number
    file.with_name("other.yaml").write_text("# @package _global_\ndefaults: [mine, _self_]\nseed: 8\n")
    assert compose_overrides(["recipe=other"]).seed == 8
