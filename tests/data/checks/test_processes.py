"""Several processes: what does not work is refused before training, with words that do."""

from types import SimpleNamespace

import pytest

from mmrl.annotators.logprobs import OldLogprobs
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.data.checks.processes import check_processes
from tests.tiny_recipes import TEXT, start, words


class Mesh:
    """What is asked of torch's device mesh."""

    mesh_dim_names = ("data_parallel", "tensor_parallel")

    def __init__(self, *shape: int):
        self.shape = shape


def trainer(size: int, data: object, *mesh: int) -> SimpleNamespace:
    """What is asked of Lightning's trainer, with `size` processes that this test does not start."""
    strategy = SimpleNamespace(device_mesh=Mesh(*mesh) if mesh else None)
    return SimpleNamespace(world_size=size, datamodule=data, strategy=strategy)


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    return CLI(to_lightning(compose([*TEXT, f"run_dir='{tmp_path_factory.mktemp('online')}'"]))).datamodule


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    more = ("rollout=demonstrations", "data.evaluation=null", "data.pipeline=[]", "objective=imitation")
    return CLI(to_lightning(compose([*TEXT, *more, f"run_dir='{tmp_path_factory.mktemp('off')}'"]))).datamodule


def test_a_mesh_that_does_not_shard_is_refused_with_its_two_sizes(offline):
    for shape in ((1, 2), (1, 1), (2, 2)):
        size = shape[0] * shape[1] if shape != (1, 1) else 2
        with pytest.raises(ValueError, match=rf"data_parallel_size={size} .*tensor_parallel_size=1"):
            check_processes(trainer(size, offline, *shape))
    check_processes(trainer(2, offline, 2, 1))
    check_processes(trainer(1, offline, 1, 1))


def test_annotators_that_run_sharded_weights_are_refused(offline):
    offline.pipeline, before = [("old", OldLogprobs())], offline.pipeline
    with pytest.raises(ValueError, match=r"data.pipeline=\[\]"):
        check_processes(trainer(2, offline, 2, 1))
    offline.pipeline = before


def test_sampling_from_sharded_weights_is_refused(online):
    with pytest.raises(ValueError, match=r"sharded weights \(FSDP2\) cannot be sampled from.*find_unused_parameters"):
        check_processes(trainer(2, online, 2, 1))
    check_processes(trainer(2, online))  # copies of the weights


def test_a_replay_buffer_is_that_of_one_process(tmp_path):
    data = CLI(to_lightning(compose(["recipe=sac", f"run_dir='{tmp_path}'", "policy.hidden=[8]"]))).datamodule
    with pytest.raises(ValueError, match=r"replay buffer of one process.*trainer.devices=1"):
        check_processes(trainer(2, data))
    check_processes(trainer(1, data))


@pytest.mark.slow
def test_the_default_sizes_of_the_sharding_strategy_end_the_run(tmp_path):
    strategy = "trainer.strategy._target_=lightning.pytorch.strategies.ModelParallelStrategy"
    done = start(words(tmp_path, "recipe=sft", "data.evaluation=null", strategy, "trainer.devices=2"))
    _, errors = done.communicate(timeout=300)
    assert done.returncode != 0 and "data_parallel_size=2" in errors
