"""A processor that does not fit the simulator or the dataset is refused before the policy is built."""

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.processor import check_processor
from mmrl.core.errors import ConfigError
from mmrl.policies.processor import Processor
from mmrl.policies.vla.small import base

VLA = ("recipe=ppo_vla", "trainer.accelerator=cpu", "trainer.callbacks.warm_start.stages=null", "trainer.logger=false")
TWO = "{kind: mean_std, offset: [0, 0], width: [1, 1]}"
BROKEN = {
    f"vectors={{proprio: {TWO}}}": "the first observation .*for 2 dimensions, the vector has shape .13,",
    f"vectors={{force: {TWO}}}": "expects observation 'force'",
    f"action={TWO}": "an action of shape .5, 3.*for 2 dimensions",
    "gripper={dim: 9}": "an action of shape .5, 3.*IndexError: index 9 is out of bounds",
    "images={image: {layout: CHW}}": "images.image turns image 'image' of shape .64, 64, 3.* into uint8 .64, 3, 64",
    "names={image: view}": None,  # the policy names what it lacks
    "images={image: {size: 32, rotate: 90}}": None,
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_processor_is_tried_before_the_policy_is_built(words, tmp_path, monkeypatch):
    def build(*_):
        raise ConfigError("the policy is built")

    monkeypatch.setattr(base, "instruction_tokenizer", build)
    cause = BROKEN[words]
    with pytest.raises(ConfigError, match=r"policy\.processor.*" + cause if cause else "the policy is built"):
        CLI(to_lightning(compose([*VLA, f"policy.processor.{words}", f"run_dir={tmp_path}"])))


def test_a_processor_of_a_checkpoint_is_tried_before_anything_is_sampled(tmp_path):
    words = [*VLA, f"run_dir={tmp_path}", "policy.hidden_size=32"]
    cli = CLI(to_lightning(compose(words)))
    check_processor(cli.model.policy.processor, cli.datamodule)
    cli.model.policy.processor = Processor.from_dict({"gripper": {"dim": 9}})
    cli.model.policy.save_pretrained(tmp_path / "policy")
    with pytest.raises(ConfigError, match=r"policy\.processor cannot convert an action"):
        CLI(to_lightning(compose([*words, "policy=tiny_vla", f"policy.path={tmp_path / 'policy'}"])))
