"""Two processes, each with an endpoint of its own, make the run of one."""

from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.runs.processes import run_ranks
from tests.tiny_recipes import COUNTING, QUIET, record

DDP = "trainer.strategy={_target_: lightning.pytorch.strategies.DDPStrategy, process_group_backend: gloo}"
RUN = (
    "recipe=grpo", *COUNTING, "rollout=agent", "rollout.agent=tests.rollouts.agent.agents:look", "evaluation=agent",
    "data.num_prompts=4", "data.group_size=4", "data.num_minibatches=1", "sampling.max_tokens=4",
    "data.evaluation.count=2", "trainer.max_epochs=2", *QUIET,
)  # fmt: skip


def test_two_processes_make_the_run_of_one(tmp_path):
    def chosen(name, *more):
        recorder = f"{{_target_: tests.tiny_recipes.Recorder, folder: '{tmp_path}/{name}/record'}}"
        return [*RUN, f"run_dir='{tmp_path}/{name}'", f"trainer.callbacks.recorder={recorder}", *more]

    CLI(to_lightning(compose(chosen("alone")))).fit()
    alone = record(tmp_path / "alone")
    run_ranks(["fit", *chosen("both", "trainer.devices=2", DDP)], tmp_path)
    first, second = record(tmp_path / "both", 0), record(tmp_path / "both", 1)
    for whole, mine, theirs in zip(*(part["minibatches"] for part in (alone, first, second)), strict=True):
        assert sorted(whole) == sorted(mine + theirs) and mine and theirs
    assert_close(first["weights"], second["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=2e-6, rtol=0)
    metrics = [[each for each in part["metrics"] if "rollout/agent/calls" in each] for part in (alone, first)]
    for one, both in zip(*metrics, strict=True):
        assert one["rollout/agent/calls"] == both["rollout/agent/calls"] == 32  # of all processes
        assert one["rollout/reward"] == both["rollout/reward"] and one["rollout/errors"] == 0
