"""Two processes make the run that one makes: the same rollouts, the same minibatches, the same weights."""

import pytest
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from tests.runs.processes import run_ranks
from tests.tiny_recipes import command, fit, record, words

GLOO = "lightning.pytorch.strategies.DDPStrategy, process_group_backend: gloo"
DDP = f"trainer.strategy={{_target_: {GLOO}, find_unused_parameters: true}}"  # a vision tower has layers without use
ITERATIONS = 2
RUNS = {
    # groups without a difference leave and others come: ranks have different numbers of rows, some micro-batches none
    "uneven": ("recipe=dapo_clip", "data.num_minibatches=2", "trainer.accumulate_grad_batches=3"),
    "images": (
        "policy=tiny_vlm",
        "data.task.image=true",
        "model.reference=true",
        "data.pipeline=[reference, group_advantage]",
    ),
    # several turns: what a tool says between them is read, and not learned
    "tools": (
        "data.rollout._target_=mmrl.rollouts.text.tools.ToolUse",
        "data.rollout.max_turns=2",
        "data.rollout.tools={say: {_target_: tests.tools.examples.Echo}}",
        "data.rollout.parser={_target_: tests.tools.examples.Always}",
        "data.sampling.stop=[a, e, i, o, u]",
        "data.rollout.max_concurrent=5",
    ),
    # episodes of text environments: rows of several turns
    "text_environment": (
        "rollout=text_environment",
        "data.task._target_=tests.text_environments.Count",
        "data.task.chance=true",
        "data.rollout.history=1",
        "data.rollout.max_concurrent=7",
        "data.reward.weights={exact: 1.0, return: 0.1}",
        "data.evaluation.rollout=${data.rollout}",
        "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
    ),
    # trees, of which some find nothing
    "trees": (
        "rollout=tree",
        "data.rollout.tokens=2",
        "data.rollout.width=3",
        "data.rollout.expansions=6",
        "data.annotators.tree={_target_: mmrl.methods.deep_search.CentredValues}",
        "data.pipeline=[tree]",
    ),
    # environments of a simulator: every process plays its share of the initial states; a random arm hardly succeeds, so
    # the entropy gives it something to learn
    "envs": (
        "recipe=demo_vla",
        "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
        "policy.hidden_size=32",
        "policy.layers=1",
        "policy.heads=2",
        "data.task.sim.image_size=32",
        "data.num_prompts=5",
        "data.group_size=2",
        "data.update_epochs=1",
        "data.num_minibatches=2",
        "data.evaluation.count=5",
    ),
}
HELD_OUT = {"envs": "val/mean/success/mean"}


def minibatches(record: dict, size: int) -> list[list]:
    """The rows of each minibatch, which spans `size` micro-batches."""
    pieces = record["minibatches"]
    return [[row for piece in pieces[i : i + size] for row in piece] for i in range(0, len(pieces), size)]


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_are_one_run(name, tmp_path):
    chosen = (*RUNS[name], f"trainer.max_epochs={ITERATIONS}", "trainer.check_val_every_n_epoch=1")
    alone = fit(tmp_path / "alone", *chosen)
    if name == "uneven":  # Lightning starts the second process
        first = command(tmp_path / "both", *chosen, "trainer.devices=2", DDP)
    else:  # torchrun starts both
        run_ranks(["fit", *words(tmp_path / "both", *chosen, "trainer.devices=2", DDP)], tmp_path)
        first = record(tmp_path / "both", 0)
    second = record(tmp_path / "both", 1)

    size = 3 if name == "uneven" else 1
    cuts = list(zip(*(minibatches(part, size) for part in (alone, first, second))))
    assert len(cuts) == 2 * ITERATIONS
    for whole, mine, theirs in cuts:
        assert sorted(whole) == sorted(mine + theirs)
    assert any(len(mine) != len(theirs) for _, mine, theirs in cuts) or name != "uneven"

    assert_close(first["weights"], second["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=2e-6, rtol=0)
    assert all(state["exp_avg"].abs().max() > 0 for state in list(alone["optimizer"][0]["state"].values())[-3:])
    assert first["data"]["curriculum"] == alone["data"]["curriculum"]
    assert any(HELD_OUT.get(name, "val/greedy/exact/mean") in numbers for numbers in first["metrics"])
    for ours, one in zip(first["metrics"], alone["metrics"]):
        assert_close(ours, one, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_sharded_weights_make_the_same_run(tmp_path):
    """FSDP2: each process holds a share of every weight; learning, checkpoint and export go through it."""
    chosen = ("recipe=sft", "task=arithmetic", "policy=tiny_text", "data.num_prompts=8", "data.num_minibatches=2")
    chosen += ("data.evaluation=null", "trainer.max_epochs=2", "trainer.gradient_clip_val=null", "optimizer.eps=1e-3")
    strategy = "lightning.pytorch.strategies.ModelParallelStrategy, data_parallel_size: 2, tensor_parallel_size: 1"
    alone = fit(tmp_path / "alone", *chosen)
    both = command(tmp_path / "both", *chosen, "trainer.devices=2", f"trainer.strategy={{_target_: {strategy}}}")
    assert_close(both["weights"], alone["weights"], atol=2e-6, rtol=0)
    other = record(tmp_path / "both", 1)
    for whole, mine, theirs in zip(*(minibatches(part, 1) for part in (alone, both, other))):
        assert sorted(whole) == sorted(mine + theirs)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "both" / "policy")
    for name, value in model.state_dict().items():
        assert_close(value, alone["weights"][f"policy.model.{name}"], atol=2e-6, rtol=0)
