"""Strategies that are not implemented, and shard sizes that do not divide, are refused before processes start."""

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.part_checks import check_division
from mmrl.config.strategy_checks import check_strategy
from mmrl.core.errors import ConfigError
from mmrl.policies.text.policy import TextPolicy

LIGHTNING = "lightning.pytorch.strategies."


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("deepspeed", "DeepSpeed"),
        ("deepspeed_stage_2", "DeepSpeed"),
        (f"{LIGHTNING}DeepSpeedStrategy", "DeepSpeed"),
        ("ddp_spawn", "processes that multiprocessing starts"),
        ("ddp_notebook_find_unused_parameters_true", "processes that multiprocessing starts"),
        ("fsdp", "FSDP1"),
        ("fsdp_cpu_offload", "FSDP1"),
        (f"{LIGHTNING}FSDPStrategy", "FSDP1"),
        (f"{LIGHTNING}ModelParallelStrategy", "tensor parallelism"),
    ],
)
@pytest.mark.parametrize("as_class", [False, True])
def test_other_strategies_are_refused_by_name(name, reason, as_class):
    given = {"class_path": name, "init_args": {}} if as_class else name
    with pytest.raises(ConfigError, match=rf"trainer\.strategy={name}: {reason}.*strategy=ddp .*strategy=fsdp2"):
        check_strategy({"strategy": given, "devices": 2})


@pytest.mark.parametrize(
    "given",
    ["auto", "ddp", "ddp_find_unused_parameters_true", "fsdp2", None, {"class_path": f"{LIGHTNING}DDPStrategy"}],
)
def test_strategies_that_are_implemented_pass(given):
    check_strategy({"strategy": given, "devices": 2})


@pytest.mark.parametrize(
    ("size", "devices", "nodes", "divides"),
    [(2, 4, 1, True), (8, 8, 2, True), (3, 4, 1, False), (8, 4, 1, False), (4, 3, 2, False), (2, [0, 3], 1, True)],
)
def test_a_shard_size_divides_the_number_of_processes(size, devices, nodes, divides):
    strategy = {"class_path": "mmrl.distributed.fsdp2.FSDP2", "init_args": {"shard_size": size}}
    trainer = {"strategy": strategy, "devices": devices, "num_nodes": nodes}
    if divides:
        check_strategy(trainer)
        return
    with pytest.raises(ConfigError, match=rf"shard_size={size} does not divide .* processes .* use a divisor"):
        check_strategy(trainer)


@pytest.mark.parametrize("devices", ["auto", -1, None])
def test_a_number_of_devices_that_is_not_named_is_left_to_the_strategy(devices):
    strategy = {"class_path": "mmrl.distributed.fsdp2.FSDP2", "init_args": {"shard_size": 3}}
    check_strategy({"strategy": strategy, "devices": devices, "num_nodes": 1})


@pytest.mark.parametrize("strategy", ["mmrl.distributed.fsdp2.FSDP2", "mmrl.distributed.ddp.DDP"])
@pytest.mark.parametrize(("size", "devices", "divides"), [(2, 4, True), (3, 4, False), (2, 1, False)])
def test_a_sequence_group_divides_the_number_of_processes(strategy, size, devices, divides):
    trainer = {"strategy": {"class_path": strategy, "init_args": {"sequence_parallel": size}}, "devices": devices}
    if divides:
        check_strategy(trainer)
        return
    with pytest.raises(ConfigError, match=rf"sequence_parallel={size} does not divide .* processes .* use a divisor"):
        check_strategy(trainer)


POLICIES = "mmrl.policies."
HEADS = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 1, "num_hidden_layers": 2}
HYBRID = {"model_type": "qwen3_5_text", "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}


@pytest.mark.parametrize(
    ("policy", "arguments", "size", "reason"),
    [
        ("text.policy.TextPolicy", {"config": HEADS}, 4, "does not divide the 6 attention heads of qwen2; use a"),
        ("text.policy.TextPolicy", {"config": HEADS, "attention": "eager"}, 2, "policy.attention='eager' keeps that"),
        ("text.policy.TextPolicy", {"config": HYBRID}, 2, "qwen3_5_text has layers of type linear_attention; use"),
        ("text.vision.VisionLanguagePolicy", {"path": "nowhere"}, 2, "of text policies, not of VisionLanguagePolicy"),
        ("control.policy.ControlPolicy", {}, 2, "divides the tokens of text policies, not of ControlPolicy; use"),
        ("text.policy.TextPolicy", {"path": "/nowhere"}, 2, "policy.path=./nowhere.: no such folder"),
        ("text.policy.TextPolicy", {"config": HEADS}, 3, None),
        ("text.policy.TextPolicy", {"config": HEADS, "attention": "eager"}, 1, None),
    ],
)
def test_policies_whose_sequences_cannot_be_divided_are_refused_before_they_are_built(policy, arguments, size, reason):
    model = {"init_args": {"policy": {"class_path": POLICIES + policy, "init_args": arguments}}}
    trainer = {"strategy": {"class_path": "mmrl.distributed.ddp.DDP", "init_args": {"sequence_parallel": size}}}
    if reason is None:
        check_division(model, trainer)
        return
    with pytest.raises(ConfigError, match=reason):
        check_division(model, trainer)


def test_a_checkpoint_is_judged_by_its_configuration(tmp_path):
    TextPolicy(config=dict(HEADS)).save_config(tmp_path)
    with pytest.raises(ValueError, match="does not divide the 6 attention heads of qwen2"):
        TextPolicy.refuse_division({"path": str(tmp_path)}, 4)
    TextPolicy.refuse_division({"path": str(tmp_path)}, 2)


RUN = ("recipe=grpo", "policy=tiny_text", "trainer.accelerator=cpu", "trainer.devices=2", "run_dir=unused")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("strategy=sequence_parallel", "policy.attention=eager"), "strategy.sequence_parallel=2 computes attention"),
        (("strategy=fsdp2", "strategy.sequence_parallel=4"), "sequence_parallel=4 does not divide the 2 processes"),
        (
            ("strategy=ddp", "strategy.sequence_parallel=2"),
            "strategy=ddp have no options; .*strategy=sequence_parallel",
        ),
        (("strategy.sequence_parallel=2",), "strategy.sequence_parallel: strategy=auto and .* have no options"),
    ],
)
def test_a_command_is_refused_before_a_policy_is_built(words, reason):
    with pytest.raises(ConfigError, match=reason):
        CLI(to_lightning(compose([*RUN, *words])))
