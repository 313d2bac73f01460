"""Strategies that are not implemented, and shard sizes that do not divide, are refused before processes start."""

import pytest

from mmrl.config.preflight import check_strategy
from mmrl.core.errors import ConfigError

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
