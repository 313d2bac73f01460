"""A run is resumed with another strategy and another number of processes, and ends with the weights of one run."""

from dataclasses import dataclass

import pytest
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode
from mmrl.runs.resumable import check_resumable
from tests.runs.processes import run_ranks
from tests.tiny_recipes import DropFrom, fit, record, words

RECIPE = ("recipe=grpo_kl", "policy.lora={r: 4}", "scheduler=constant", "trainer.check_val_every_n_epoch=1")
FILE = ("strategy=fsdp2", "strategy.save_distributed_checkpoint=false")
BEGUN = {"folder": (2, ("strategy=fsdp2",)), "file": (2, FILE), "one": (1, ())}
RESUMED = (
    ("folder", 2, ("strategy=fsdp2", "trust=true")),
    ("folder", 1, ("strategy=fsdp2", "trust=true")),
    ("file", 1, ()),
    ("file", 2, ("strategy=ddp",)),
    ("one", 2, FILE),
)


def run(folder, processes, *more):
    chosen = (*RECIPE, *more, f"trainer.devices={processes}")
    if processes == 1 and "strategy=fsdp2" not in more:
        return fit(folder, *chosen)
    folder.mkdir(parents=True, exist_ok=True)
    run_ranks(["fit", *words(folder, *chosen)], folder, processes)
    return record(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that is not interrupted."""
    return run(tmp_path_factory.mktemp("whole"), 1, "trainer.max_epochs=2")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The checkpoint of a run's first iteration, made once for each way to save."""
    done = {}

    def begin(name):
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            processes, more = BEGUN[name]
            run(folder, processes, *more, "trainer.max_epochs=1")
            done[name] = folder / "checkpoints" / "last.ckpt"
        return done[name]

    return begin


@pytest.mark.parametrize(("name", "processes", "more"), RESUMED, ids=lambda part: str(part))
def test_a_resumed_run_is_the_whole_run(name, processes, more, begun, whole, tmp_path):
    left = run(tmp_path, processes, *more, "trainer.max_epochs=2", f"ckpt_path={begun(name)}")
    assert_close(left["weights"], whole["weights"], atol=2e-6, rtol=0)
    assert left["data"]["curriculum"] == whole["data"]["curriculum"]


EMPTY = ("data.transforms.early={_target_: tests.distributed.test_resume.DropBefore, iteration: 1}",)


@dataclass(frozen=True)
class DropBefore(DropFrom):
    """Drops every episode before an iteration."""

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return episodes if ctx.iteration >= self.iteration else []


def test_a_checkpoint_before_the_first_step_counts_no_step(tmp_path):
    """The bias correction of Adam is that of a run that saved nothing by then, in the run itself and resumed."""
    alone = run(tmp_path / "alone", 1, *EMPTY, "trainer.max_epochs=2")
    left = run(tmp_path / "sharded", 2, "strategy=fsdp2", *EMPTY, "trainer.max_epochs=2")
    assert_close(left["weights"], alone["weights"], atol=2e-6, rtol=0)
    run(tmp_path / "first", 2, "strategy=fsdp2", *EMPTY, "trainer.max_epochs=1")
    checkpoint = (f"ckpt_path={tmp_path / 'first/checkpoints/last.ckpt'}", "trust=true", "trainer.max_epochs=2")
    resumed = run(tmp_path / "second", 2, "strategy=fsdp2", *EMPTY, *checkpoint)
    assert_close(resumed["weights"], alone["weights"], atol=2e-6, rtol=0)


def test_a_sharded_run_exports_its_merged_policy(begun, tmp_path):
    """The export of adapters is a plain checkpoint that transformers loads."""
    model = AutoModelForCausalLM.from_pretrained(begun("folder").parent.parent / "policy")
    other = AutoModelForCausalLM.from_pretrained(begun("one").parent.parent / "policy")
    assert model.state_dict().keys() == other.state_dict().keys()
    for name, value in model.state_dict().items():
        assert_close(value, other.state_dict()[name], atol=2e-6, rtol=0)


def test_a_folder_of_shards_is_refused_without_the_strategy(begun):
    with pytest.raises(ConfigError, match=r"only strategy=fsdp2 reads.*save_distributed_checkpoint=false"):
        check_resumable(str(begun("folder")), trust=True, shards=False)
