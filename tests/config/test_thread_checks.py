"""What a thread beside the learner cannot use is refused before anything is built."""

from dataclasses import dataclass

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from tests.engines.test_named_models import GUIDED
from tests.tiny_recipes import DropFrom, words


@dataclass(frozen=True)
class Reader(DropFrom):
    """Names a model of the learner."""

    iteration: int = 99
    model: str = "reference"


def refuse(folder, *more):
    with pytest.raises(ConfigError) as caught:
        CLI(to_lightning(compose(words(folder, *more))))
    return str(caught.value)


def test_a_sharded_model_that_the_local_engine_samples(tmp_path):
    text = refuse(tmp_path, *GUIDED, "data=async", "strategy=fsdp2")
    assert "data.engine samples 'guide'" in text and "sharded (strategy=fsdp2)" in text and "engine=vllm_server" in text


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("other", "+model.auxiliary_models={other: 0.001}"), "trained meanwhile"),
        (("reference", "model.reference=true", "strategy=fsdp2"), "sharded (strategy=fsdp2)"),
    ],
)
def test_a_transform_that_reads_such_a_model(more, reason, tmp_path):
    name, *arguments = more
    reader = f"data.transforms.gain={{_target_: {__name__}.Reader, model: {name}}}"
    text = refuse(tmp_path, "data=async", reader, *arguments)
    assert "data.transforms.gain reads" in text and reason in text and "data.staleness=0" in text


def test_nothing_is_refused_without_threads(tmp_path):
    built = CLI(to_lightning(compose(words(tmp_path, *GUIDED, "strategy=fsdp2"))))
    assert built.datamodule.staleness == 0
