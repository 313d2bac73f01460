"""Several processes make the run that one makes: the same rollouts, the same minibatches, the same weights."""

from itertools import chain

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.laws.heads import openvla_oft_folder, pi0_fast_folder, pi0_folder, pi05_folder, smolvla_folder
from tests.runs.processes import run_ranks
from tests.test_recipes import SMALL
from tests.tiny_recipes import command, fit, record, words

STRATEGIES = {
    "ddp": ("strategy=ddp",),
    "fsdp2": ("strategy=fsdp2",),
    "hsdp": ("strategy=fsdp2", "strategy.shard_size=2"),
    "no_sync": ("strategy=fsdp2", "strategy.no_sync=true"),
}
ITERATIONS = 2  # the second has the state that the first leaves
EVERY = (f"trainer.max_epochs={ITERATIONS}", "trainer.check_val_every_n_epoch=1")
ARM = (
    "policy.hidden_size=32",
    "policy.layers=1",
    "policy.heads=2",
    "data.task.sim.image_size=32",
    "data.num_prompts=5",
    "data.group_size=2",
    "data.update_epochs=1",
    "data.num_minibatches=2",
    "data.evaluation.count=5",
)
"""Words that make a run of a simulated arm small."""
CHECKPOINT = tuple(word for word in ARM if not word.startswith("policy."))
"""The same for a policy whose sizes are those of its checkpoint."""
TOKENS = ("recipe=demo_vla", "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}")
FLOW = ("recipe=flow_sde_grpo", "data.reward.weights={tip_distance_m: -1.0}", "policy.chain.steps=4")
PRETRAINED = {
    "pi0": (pi0_folder, *FLOW, "policy.keep_contexts=true", "policy.gradient_checkpointing=true"),
    "pi05": (pi05_folder, *FLOW, "policy.freeze_context=false", "trainer.accumulate_grad_batches=2"),
    "smolvla": (smolvla_folder, *FLOW, "policy.gradient_checkpointing=true"),
    "pi0_fast": (pi0_fast_folder, *TOKENS),
    "openvla_oft": (openvla_oft_folder, *TOKENS),
}
"""Policies on a pretrained vision-language model: a tiny checkpoint, and words."""
HYBRID = (
    "{model_type: qwen3_5_text, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, "
    "num_key_value_heads: 2, head_dim: 8, layer_types: [linear_attention, full_attention], linear_num_key_heads: 2, "
    "linear_num_value_heads: 2, linear_key_head_dim: 8, linear_value_head_dim: 8, tie_word_embeddings: true}"
)
EXPERTS = (
    "policy.config={model_type: qwen3_moe, hidden_size: 16, intermediate_size: 32, moe_intermediate_size: 16, "
    "num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, num_experts: 4, "
    "num_experts_per_tok: 2, tie_word_embeddings: true}",
    "policy.router_replay=true",
    "policy.output_router_logits=true",
    "objective.terms.load_balancing={_target_: mmrl.objectives.regularizer.LoadBalancing}",
    "objective.coefficients={load_balancing: 0.1}",
)
RUNS = {
    # groups without a difference leave and others come: ranks have different numbers of rows, some micro-batches none
    "uneven": (
        *("recipe=dapo_clip", "data.num_minibatches=2", "trainer.accumulate_grad_batches=3"),
        # a transform with a state, rows of earlier iterations, and a number that changes
        "data.rows.replay={_target_: mmrl.transforms.rows.replay.ReplayRows, groups: 3}",
        "data.rows.select={_target_: mmrl.transforms.rows.select.SelectByAdvantage, fraction: 0.75}",
        "data.transforms.third={_target_: tests.transforms.test_state.LeaveOutThird}",
        "data.sampling.temperature={_target_: mmrl.schedules.Linear, start: 1.0, end: 0.9, iterations: 1}",
    ),
    "images": (
        "policy=tiny_vlm",
        *SMALL["tiny_vlm"],
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
        "data.annotators.tree={_target_: mmrl.methods.search.deep_search.CentredValues}",
        "data.pipeline=[tree]",
    ),
    # environments of a simulator: every process plays its share of the initial states; a random arm hardly succeeds, so
    # the entropy gives it something to learn
    "envs": (
        "recipe=demo_vla",
        "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
        *ARM,
    ),
    # a flow head, whose noise every row draws from a seed of its own
    "flow": (
        "recipe=flow_sde_grpo",
        "data.reward.weights={tip_distance_m: -1.0}",
        "optimizer.eps=1e-3",  # Adam divides rounding by the smallest gradients
        *ARM,
    ),
    # a frozen base below adapters, and a reference that shares it
    "adapters": ("recipe=grpo_kl", "policy.lora={r: 4}"),
    # the same with the base in 4 bits
    "qlora": ("recipe=grpo_kl", "policy.lora={r: 4}", "policy.quantization=nf4"),
    # layers with a recurrent state, in chunks of rows
    "hybrid": (f"policy.config={HYBRID}", "trainer.accumulate_grad_batches=2"),
    # experts in one tensor a layer, whose loads are those of the rows of all processes
    "experts": EXPERTS,
    "expert_adapters": (*EXPERTS, "policy.lora={r: 2, target_parameters: experts}"),
    # logits in chunks of 6 tokens, of a tied output layer
    "chunked_logits": ("policy.max_logits=600", "trainer.accumulate_grad_batches=2"),
    # prompts of different lengths in one sequence
    "packed_prompts": ("policy.pack_prompts=true", "trainer.accumulate_grad_batches=2"),
    # one prompt: the other processes have nothing to sample, to score or to learn from
    "one_prompt": (
        *("recipe=lite_ppo", "data.num_prompts=1", "data.group_size=8"),  # a statistic of the rows of all processes
        "data.annotators.old={_target_: mmrl.annotators.logprobs.OldLogprobs}",
        "data.pipeline=[old, group_advantage]",
        "policy.gradient_checkpointing=true",
    ),
    # a value head, and advantages that are whitened over the rows of all processes
    "values": ("recipe=ppo_text", "data.num_prompts=9", "data.group_size=1", "trainer.accumulate_grad_batches=2"),
    # rows with and without an image, and an encoder that is not trained
    "some_images": (
        "policy=tiny_vlm",
        *SMALL["tiny_vlm"],
        "data.task.image=true",
        "data.task.without=3",
        "policy.freeze_vision=true",
        "data.num_prompts=5",
        "trainer.accumulate_grad_batches=3",
    ),
    # a replay buffer: each process stores the transitions of its environments, and the oldest are overwritten
    "sac": (
        *("recipe=sac", "policy.hidden=[16]", "model.models.critic.hidden=[16]", "data.learning_starts=16"),
        *("data.rollout.num_envs=5", "data.rollout.horizon=8", "data.gradient_steps=5", "data.updates_per_step=3"),
        *("data.replay.capacity=60", "data.replay.batch_size=16", "data.evaluation.count=3"),
        "data.task.sim.max_episode_steps=11",
    ),
    # n-step returns, and updates in which a process has no rows
    "td3": (
        *("recipe=td3", "policy.hidden=[16]", "model.models.critic.hidden=[16]", "data.learning_starts=16"),
        *("data.rollout.num_envs=5", "data.rollout.horizon=8", "data.gradient_steps=8", "data.updates_per_step=4"),
        *("data.replay.n_steps=3", "data.replay.batch_size=3", "data.evaluation.count=3"),
        "data.task.sim.max_episode_steps=11",
    ),
    # phases with metrics of their own
    "metra": (
        *("recipe=metra", "policy.hidden=[16]", "model.models.critic.hidden=[16]", "data.learning_starts=16"),
        *("model.models.representation.hidden=[16]", "data.rollout.num_envs=5", "data.rollout.horizon=8"),
        *("data.gradient_steps=4", "data.updates_per_step=2", "data.replay.batch_size=16", "data.evaluation.count=3"),
    ),
    # environments that go on, learned from in minibatches
    "control": (
        *("recipe=ppo_control", "policy.hidden=[64, 64]", "data.rollout.num_envs=5", "data.rollout.horizon=16"),
        *("data.num_prompts=3", "data.update_epochs=1", "data.num_minibatches=2", "data.evaluation.count=3"),
    ),
    # answers that are given: nothing is sampled for learning
    "demonstrations": (
        *("recipe=sft", "task=arithmetic", "policy=tiny_text", "data.num_prompts=9", "data.num_minibatches=2"),
        *("data.evaluation.count=4", "optimizer.eps=1e-3"),
    ),
}
RETURN = "val/greedy/returns/return"
HELD_OUT = {
    "envs": "val/mean/success/mean",
    "flow": "val/mean/success/mean",
    "sac": RETURN,
    "td3": RETURN,
    "metra": RETURN,
    "control": RETURN,
}
REPLAY = ("sac", "td3", "metra")  # whose learner does not shard weights
CONTINUOUS = (*REPLAY, "flow")  # whose rows are real numbers
PAIRS = [(strategy, name) for strategy in STRATEGIES for name in RUNS if strategy == "ddp" or name not in REPLAY]


def minibatches(record: dict, size: int) -> list[list]:
    """The rows of each minibatch, which spans `size` micro-batches."""
    pieces = record["minibatches"]
    return [[row for piece in pieces[i : i + size] for row in piece] for i in range(0, len(pieces), size)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The record of a run in one process, made once for all strategies."""
    done: dict[str, dict] = {}

    def run(name: str) -> dict:
        if name == "qlora":
            pytest.importorskip("bitsandbytes", reason="pip install 'mmrl-lightning[qlora]' installs it")
        if name not in done:
            done[name] = fit(tmp_path_factory.mktemp(name), *RUNS[name], *EVERY)
        return done[name]

    return run


@pytest.mark.parametrize(("strategy", "name"), [pair for pair in PAIRS if pair[0] in ("ddp", "fsdp2")])
def test_two_processes_are_one_run(strategy, name, alone, tmp_path):
    once = alone(name)
    chosen = (*RUNS[name], *EVERY, "trainer.devices=2", *STRATEGIES[strategy])
    if name == "uneven":  # Lightning starts the second process
        command(tmp_path, *chosen)
    else:  # torchrun starts both
        run_ranks(["fit", *words(tmp_path, *chosen)], tmp_path)
    check_run(name, once, [record(tmp_path, rank) for rank in range(2)])
    if strategy == "fsdp2":
        assert max(record(tmp_path, rank)["held"] for rank in range(2)) <= 0.55 * once["held"]


def test_two_processes_that_reduce_gradients_once_are_one_run(alone, tmp_path):
    run_ranks(["fit", *words(tmp_path, *RUNS["uneven"], *EVERY, "trainer.devices=2", *STRATEGIES["no_sync"])], tmp_path)
    check_run("uneven", alone("uneven"), [record(tmp_path, rank) for rank in range(2)])


@pytest.mark.parametrize("name", PRETRAINED)
def test_two_processes_with_a_pretrained_vla_are_one_run(name, tmp_path):
    checkpoint, *chosen = PRETRAINED[name]
    chosen = [*chosen, "optimizer.eps=1e-3", *CHECKPOINT, f"policy={name}", f"policy.path='{checkpoint()}'"]
    chosen = [*chosen, "trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "optimizer.lr=3e-4"]
    once = fit(tmp_path / "alone", *chosen)
    run_ranks(["fit", *words(tmp_path, *chosen, "trainer.devices=2", "strategy=fsdp2")], tmp_path)
    ranks = [record(tmp_path, rank) for rank in range(2)]
    check_weights_and_metrics(once, ranks)
    assert max(rank["held"] for rank in ranks) <= 0.55 * once["held"]
    before = CLI(to_lightning(compose(words(tmp_path / "start", *chosen)))).model.state_dict()
    assert any(not torch.equal(value, once["weights"][key]) for key, value in before.items())


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "name"), PAIRS)
def test_four_processes_are_one_run(strategy, name, alone, tmp_path):
    once = alone(name)
    chosen = (*RUNS[name], *EVERY, "trainer.devices=4", *STRATEGIES[strategy])
    run_ranks(["fit", *words(tmp_path, *chosen)], tmp_path, ranks=4)
    check_run(name, once, [record(tmp_path, rank) for rank in range(4)])
    if strategy != "ddp":
        share = 0.55 if strategy == "hsdp" else 0.3
        assert max(record(tmp_path, rank)["held"] for rank in range(4)) <= share * once["held"]


def check_run(name: str, alone: dict, ranks: list[dict]) -> None:
    """Compare the records of a run's processes with that of one process."""
    first = ranks[0]
    accumulated = next((word for word in RUNS[name] if word.startswith("trainer.accumulate_grad_batches=")), "=1")
    size = int(accumulated.partition("=")[2])
    cuts = list(zip(*(minibatches(part, size) for part in (alone, *ranks))))
    assert len(cuts) == 2 * ITERATIONS
    for whole, *parts in cuts:
        whole, together = sorted(whole), sorted(chain.from_iterable(parts))
        if name in CONTINUOUS:
            assert [row for row, _ in whole] == [row for row, _ in together]
            assert_close([row for _, row in whole], [row for _, row in together], atol=1e-5, rtol=1e-5)
        else:
            assert whole == together
    assert any(len({len(part) for part in parts}) > 1 for _, *parts in cuts) or name != "uneven"

    check_weights_and_metrics(alone, ranks)
    assert all(state["exp_avg"].abs().max() > 0 for state in list(alone["optimizer"][-1]["state"].values())[-3:])
    assert first["data"]["curriculum"] == alone["data"]["curriculum"]
    assert any(HELD_OUT.get(name, "val/greedy/exact/mean") in numbers for numbers in first["metrics"])


def check_weights_and_metrics(alone: dict, ranks: list[dict]) -> None:
    """Compare what a run's processes have learned and logged with one process."""
    first = ranks[0]
    for other in ranks[1:]:
        assert_close(first["weights"], other["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=2e-6, rtol=0)
    for ours, one in zip(first["metrics"], alone["metrics"], strict=True):
        assert_close(ours, one, atol=1e-5, rtol=1e-4)
