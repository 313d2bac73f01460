"""Several processes: what does not work is refused before training, with words that do."""

from types import SimpleNamespace

import pytest
from lightning.pytorch.strategies import (
    DDPStrategy,
    DeepSpeedStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
)

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.data.checks.processes import check_processes
from mmrl.distributed import parallel
from mmrl.distributed.fsdp2 import FSDP2


@pytest.mark.parametrize("kind", [FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy])
def test_strategies_that_are_not_implemented_are_refused_by_name(kind):
    strategy = object.__new__(kind)  # DeepSpeed is not installed
    with pytest.raises(ValueError, match=rf"{kind.__name__}.* strategy=ddp.* strategy=fsdp2"):
        parallel.refuse_strategy(SimpleNamespace(strategy=strategy))


def test_one_process_ddp_and_fsdp2_are_accepted():
    for strategy in (SingleDeviceStrategy("cpu"), DDPStrategy(), FSDP2()):
        parallel.refuse_strategy(SimpleNamespace(strategy=strategy))


def test_ddp_finds_unused_weights_unless_the_strategy_forbids_it():
    sees, reads, chooses = (
        SimpleNamespace(optional_modules=lambda parts=parts: parts, leaves_weights_out=idle)
        for parts, idle in ((["encoder"], False), ([], False), ([], True))
    )
    for given, policy, wanted in (
        ({}, sees, True),
        ({}, chooses, True),
        ({}, reads, None),
        ({"find_unused_parameters": False}, sees, False),
    ):
        trainer = SimpleNamespace(strategy=DDPStrategy(**given))
        parallel.allow_unused_parameters(trainer, policy)
        assert trainer.strategy._ddp_kwargs.get("find_unused_parameters") is wanted


def test_a_shard_size_divides_the_number_of_processes():
    strategy = FSDP2(shard_size=3)
    strategy.cluster_environment = SimpleNamespace(world_size=lambda: 4)
    strategy._device_mesh = None
    with pytest.raises(ValueError, match="shard_size=3 does not divide the 4 processes"):
        strategy._build_shard_mesh()
    with pytest.raises(ValueError, match="shard_size must be at least 1, got 0"):
        FSDP2(shard_size=0)


def test_every_process_needs_an_environment_of_a_rollout_that_goes_on(tmp_path):
    data = CLI(to_lightning(compose(["recipe=sac", f"run_dir='{tmp_path}'", "policy.hidden=[8]"]))).datamodule
    with pytest.raises(ValueError, match=r"rollout\.num_envs=1 is less than the 2 processes.*rollout\.num_envs=2"):
        check_processes(SimpleNamespace(world_size=2, datamodule=data))
    check_processes(SimpleNamespace(world_size=1, datamodule=data))


def test_off_policy_learners_do_not_shard_weights(tmp_path):
    model = CLI(to_lightning(compose(["recipe=sac", f"run_dir='{tmp_path}'", "policy.hidden=[8]"]))).model
    strategy = FSDP2()
    model.trainer = SimpleNamespace(strategy=strategy, precision="32-true", world_size=1, datamodule=None)
    with pytest.raises(ValueError, match=r"strategy=fsdp2 .* Use strategy=ddp"):
        model.setup("fit")
