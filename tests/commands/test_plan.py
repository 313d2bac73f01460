"""Plans against the bytes that torch allocates, against arithmetic by hand, and the command's output."""

import copy
import functools
import json
import pydoc

import lightning as L
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from mmrl.__main__ import main
from mmrl.commands.cli import CLI
from mmrl.commands.plan import build_plan, parse, plan
from mmrl.commands.planning.live_bytes import LiveBytes
from mmrl.commands.planning.memory import CUDA_CONTEXT
from mmrl.commands.planning.optimizer import measure_optimizer
from mmrl.commands.planning.packs import shares_prefix
from mmrl.commands.planning.parameters import measure_module
from mmrl.commands.planning.passes import PackTrace, PlannedGroup, TextPasses, combine
from mmrl.commands.planning.planning import Given
from mmrl.commands.planning.prompts import Prompts, build_batch
from mmrl.commands.planning.report import parse_bytes
from mmrl.commands.planning.run import count_rows
from mmrl.commands.planning.seconds import read_seconds
from mmrl.commands.planning.shapes import build_on_meta, fake_weights
from mmrl.config.compose import compose, to_lightning
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.tiny import character_tokenizer

CONFIG = {
    "model_type": "qwen2",
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "tie_word_embeddings": True},
}
WORDS = (
    *("recipe=grpo", "capture=false", "trainer.callbacks.warm_start.stages=null", "data.evaluation=null"),
    *("data.transforms=null", "data.num_prompts=2", "data.group_size=2", "data.num_minibatches=1"),
    *("trainer.max_epochs=1", "trainer.accelerator=cpu", "policy.config.num_hidden_layers=2"),
)


class Bytes(L.Callback):
    """Bytes of gradients before the optimiser's step, and of its state after it."""

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.gradients = sum(p.grad.nbytes for p in pl_module.policy.parameters() if p.grad is not None)

    def on_train_end(self, trainer, pl_module):
        (optimizer,) = trainer.optimizers
        self.state = count_bytes(optimizer)


def count_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the tensors of a state; a table that all states share counts once."""
    tensors = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    return sum(tensor.nbytes for tensor in {tensor.data_ptr(): tensor for tensor in tensors}.values())


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["policy.lora.r=4"],
        ["policy.value_head=true", "model.reference=true"],
        ["policy.dtype=bfloat16", "policy.lora.r=4"],
        ["optimizer.amsgrad=true"],
        ["optimizer._target_=timm.optim.Muon"],
        ["optimizer._target_=bitsandbytes.optim.AdamW8bit"],
    ],
    ids=["full", "lora", "reference", "bf16", "amsgrad", "muon", "8bit"],
)
def test_exact_terms_are_the_bytes_of_a_run(more, tmp_path, monkeypatch):
    """Weights, gradients, optimiser state and reference of the plan equal those of the tensors after a learn step."""
    if any("bitsandbytes" in word for word in more):
        pytest.importorskip("bitsandbytes")
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, *more]
    made = build_plan(words, Given(trace=False))
    cli = CLI(to_lightning(compose([*words, "run_dir=run"])))
    counted = Bytes()
    cli.trainer.callbacks.append(counted)
    cli.fit()
    policy = cli.model.policy
    terms = made.ranks[0].phases["step"]
    tensors = {tensor.data_ptr(): tensor for tensor in (*policy.parameters(), *policy.buffers())}
    assert terms["weights"] == sum(tensor.nbytes for tensor in tensors.values())
    assert terms["gradients"] == counted.gradients and terms["optimiser state"] == counted.state
    assert made.size.trainable == sum(p.numel() for p in policy.parameters() if p.requires_grad)
    if "model.reference=true" in more:
        reference = cli.model.models["reference"]
        assert terms["reference"] == sum(t.nbytes for t in (*reference.parameters(), *reference.buffers()))
    assert ("reference" in terms) == ("model.reference=true" in more)


class Copies(L.Callback):
    """Bytes of the copies from which a run samples beside its learner, those of the policy's own tensors left out."""

    most = 0

    def on_train_epoch_end(self, trainer, pl_module):
        policy, snapshots = {t.data_ptr() for t in list_tensors(pl_module.policy)}, trainer.datamodule._snapshots
        copies = [t for copy in (*snapshots._used.values(), *snapshots._spare) for t in list_tensors(copy)]
        beside = {t.data_ptr(): t.nbytes for t in copies if t.data_ptr() not in policy}
        self.most = max(self.most, sum(beside.values()))


def list_tensors(module):
    return [*module.parameters(), *module.buffers()]


@pytest.mark.parametrize(
    "more", [["data.staleness=1"], ["data.staleness=3"], ["data.staleness=2", "policy.lora.r=4"]], ids=str
)
def test_copies_of_asynchronous_collection_are_those_of_a_run(more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, "recipe=grpo_async", *more, "trainer.max_epochs=6"]
    words = [word for word in words if word not in ("recipe=grpo", "trainer.max_epochs=1")]
    phases = build_plan(words, Given(trace=False)).ranks[0].phases
    cli = CLI(to_lightning(compose([*words, "run_dir=run"])))
    cli.trainer.callbacks.append(counted := Copies())
    cli.fit()
    assert {phase["weight copies"] for phase in phases.values()} == {counted.most} and counted.most > 0


@pytest.mark.parametrize(
    ("shared", "lengths", "choices"), [(False, (9, 20), 1080), (True, (500, 520), 30)], ids=["padded", "shared"]
)
def test_masks_are_counted_and_never_allocated(shared, lengths, choices, monkeypatch):
    """All rows in one pass, of two prompts: B sequences of L tokens need masks of B * L * L entries.

    One is boolean; the CPU's attention makes one of fp32 in each of the three layers and keeps it for backward.
    """
    policy, real = build_on_meta(TextPolicy, {"config": dict(CONFIG)}), TextPolicy(config=dict(CONFIG))
    fake_weights(policy)
    devices, count = set(), LiveBytes._count

    def record(self, storage, is_mask):
        devices.update({storage.device.type} if is_mask else ())
        count(self, storage, is_mask)

    monkeypatch.setattr(LiveBytes, "_count", record)
    prompts = Prompts([{"input_ids": torch.full((n,), 7)} for n in lengths], "here")
    passes = []
    for each in (policy, real):
        each.one_pass = True
        each.prefix_sharing.masks = shared
        batch = build_batch(real, prompts, rows=4, of_prompt=2, choices=choices)
        tracer = TextPasses(each, "cpu", mixed=False)
        (packed,) = tracer._pack(batch)
        assert shares_prefix(packed.inputs) == shared
        passes.append(tracer._trace(packed, batch))
        if each is policy:
            assert isinstance(packed.inputs.tensors["attention_mask"], FakeTensor) and devices <= {"meta"}
    rows, length = packed.inputs.tensors["input_ids"].shape
    assert passes[0] == passes[1] and passes[0].masks >= rows * length**2


def test_live_bytes_are_those_of_storages():
    """10 x 100 fp32 are 4,000 bytes: an input, its product and its rectified copy; a view has none."""
    weight = nn.Parameter(torch.zeros(100, 100))
    module = nn.Module()
    module.weight = weight
    live = LiveBytes(module)
    with live:
        x = torch.ones(10, 100)
        y = x @ weight
        assert live.live == 8_000
        view = y.view(-1)[:5]
        assert live.live == 8_000
        z = torch.relu(y)
        assert live.live == live.peak == 12_000
        del view, y
        assert live.live == 8_000  # the rectifier saves its result
        z.sum().backward()
        del z, x
        assert live.live == weight.grad.nbytes == 40_000
    del weight.grad
    assert live.live == 0 and live.peak > 48_000


def test_a_trace_without_weights_equals_one_with_weights():
    """The live bytes of forward and backward are equal for tensors without content and for real ones."""
    policy = build_on_meta(TextPolicy, {"config": dict(CONFIG)})
    assert all(parameter.is_meta for parameter in policy.parameters())
    fake_weights(policy)
    real = TextPolicy(config=dict(CONFIG))
    batch = build_batch(real, Prompts([{"input_ids": torch.full((9,), 7)}], "here"), rows=4, of_prompt=2, choices=5)
    traces = []
    for each in (policy, real):
        passes = TextPasses(each, "cpu", mixed=False)
        (packed,) = passes._pack(batch)
        traces.append(passes._trace(packed, batch))
    assert traces[0] == traces[1] and traces[0].saved > 0


def test_saved_activations_are_those_that_autograd_saves():
    policy = TextPolicy(config=dict(CONFIG))
    batch = build_batch(policy, Prompts([{"input_ids": torch.full((9,), 7)}], "here"), rows=4, of_prompt=2, choices=5)
    passes = TextPasses(policy, "cpu", mixed=False)
    (packed,) = passes._pack(batch)
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*policy.parameters(), *policy.buffers())}
    held, kept = {}, []

    def pack(tensor):
        kept.append(tensor)  # alive, so that no other storage gets its place
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        policy.score_inputs(packed.inputs, batch)
    saved = sum(size for place, size in held.items() if place not in weights)
    assert passes._trace(packed, batch).saved == pytest.approx(saved, rel=0.02)


def test_divided_sequences_keep_a_share_of_the_activations():
    """One row of 200 tokens, without a mask over pairs of tokens: what is kept beside weights is a share of it."""
    policy = TextPolicy(config=dict(CONFIG), max_logits=1000)
    policy.measure_network()
    batch = build_batch(
        policy, Prompts([{"input_ids": torch.full((60,), 7)}], "here"), rows=1, of_prompt=1, choices=141
    )
    whole, half, quarter = (plan_divided(policy, batch, size) for size in (1, 2, 4))
    assert (whole.tokens, half.tokens, quarter.tokens) == (200, 100, 50)
    assert half.activations == pytest.approx(whole.activations / 2, rel=0.1)
    assert quarter.activations == pytest.approx(whole.activations / 4, rel=0.2)


def plan_divided(policy, batch, size):
    with PlannedGroup(size=size).divide():
        return TextPasses(policy, "cpu", mixed=False).learn(batch, False)


def test_a_plan_counts_the_processes_that_divide_a_sequence():
    words = [word for word in WORDS if not word.startswith(("data.num_prompts", "data.group_size"))]
    words += ["data.num_prompts=8", "data.group_size=2", "trainer.devices=2", "policy.pack_prompts=false"]
    given = Given(prompt_tokens=64)
    plain, divided, smaller = (
        build_plan([*words, f"strategy={name}", f"trainer.accumulate_grad_batches={count}"], given)
        for name, count in (("ddp", 4), ("sequence_parallel", 4), ("sequence_parallel", 8))
    )
    assert [plan.processes.sequence for plan in (plain, divided, smaller)] == [1, 2, 2]
    assert (plain.processes.strategy, divided.processes.strategy) == ("ddp", "ddp")
    assert plain.rows.iteration == divided.rows.iteration == 8
    # a micro-batch is of the rows of both processes: as many with twice as many micro-batches, half of their tokens
    assert [plan.rows.micro_batch for plan in (plain, divided, smaller)] == [2, 4, 2]
    tokens = [plan.without_checkpointing.tokens for plan in (plain, smaller)]
    assert tokens[1] == pytest.approx(tokens[0] / 2, rel=0.02)
    activations = [plan.without_checkpointing.activations for plan in (plain, smaller)]
    assert activations[1] < 0.75 * activations[0]  # the mask of completions of one prompt is whole in each


def test_rows_of_a_sequence_group_are_those_of_its_ranks():
    # five prompts: three of rank 0 and two of rank 1
    rows = count_rows(5, 4, num_minibatches=2, accumulate=2, world=2, max_rows=8, sequence=2)
    assert (rows.iteration, rows.minibatch, rows.micro_batch, rows.rollout) == (12, 10, 5, 8)


def test_checkpointing_keeps_less_and_a_larger_micro_batch_more():
    plain, small = (
        build_plan([*WORDS, f"trainer.accumulate_grad_batches={count}"], Given(prompt_tokens=64)) for count in (1, 4)
    )
    assert plain.without_checkpointing.activations > 2 * plain.with_checkpointing.activations
    assert plain.without_checkpointing.activations > 2 * small.without_checkpointing.activations
    chosen = build_plan([*WORDS, "policy.gradient_checkpointing=true"], Given(prompt_tokens=64))
    assert chosen.ranks[0].phases["learn"]["activations"] == plain.with_checkpointing.activations
    assert chosen.checkpointing and not plain.checkpointing


def test_packed_batches_add_up():
    """Two batches that keep 100 and 50 bytes: the second goes backward first and allocates the 30 of the gradients."""
    first, second = PackTrace(100, 0, 110, 150, 120), PackTrace(50, 0, 60, 95, 65)
    made = combine([first, second], gradients=30, logits=[10, 20], in_backward=20, tokens=7)
    assert made.activations == 150 - 30 and made.logits == 30 + 20
    assert made.first_peak == 100 + 95 and made.next_peak == 100 + 65


@pytest.mark.parametrize("more", [[], ["policy.lora.r=4"]], ids=["trained", "frozen"])
def test_logits_in_chunks_are_planned(more):
    """4 completions of 24 choices, 9 tokens at once: neither all logits nor their gradient are held."""
    lengths = Given(prompt_tokens=1, response_tokens=24)
    words = [word for word in WORDS if "layers" not in word]
    words += ["policy.config.hidden_size=4", "policy.config.intermediate_size=4", "policy.config.num_hidden_layers=1"]
    whole, chunks = (
        build_plan([*words, *more, *extra], lengths).without_checkpointing for extra in ([], ["policy.max_logits=1000"])
    )
    vocabulary = len(character_tokenizer())
    logits = 4 * 24 * vocabulary * 4
    assert whole.passes == 1 and whole.logits == 2 * logits
    assert chunks.logits == 2 * (1000 // vocabulary) * vocabulary * 4
    assert chunks.next_peak < whole.next_peak - logits
    assert chunks.activations == pytest.approx(whole.activations, rel=0.1)


OPTIMIZERS = ("torch.optim.AdamW", "torch.optim.SGD", "torch.optim.RMSprop", "timm.optim.Muon")
EIGHT_BIT = ("AdamW8bit", "Lion8bit", "AdEMAMix8bit", "PagedAdamW8bit", "AdamW32bit")


@pytest.mark.parametrize("name", [*OPTIMIZERS, *(f"bitsandbytes.optim.{name}" for name in EIGHT_BIT)])
def test_the_state_of_an_optimizer_is_what_it_allocates(name):
    """Vectors and matrices below and above the size from which on states have 8 bits, and a block that is not full."""
    pytest.importorskip(name.partition(".")[0])
    make = pydoc.locate(name)
    module = nn.Sequential(nn.Linear(7, 5), nn.Linear(96, 160), nn.Linear(151, 113, bias=False), nn.LayerNorm(9000))
    optimizer = make(module.parameters(), lr=1e-3)
    sum(parameter.sum() for parameter in module.parameters()).backward()
    optimizer.step()
    found = measure_optimizer(lambda parameters: make(parameters, lr=1e-3), [measure_module(module)], "cpu")
    assert found.state == count_bytes(optimizer) and found.name == make.__name__


def test_rows_of_ranks_and_micro_batches():
    """5 prompts of 4 on 2 ranks: 3 and 2 prompts; 12 rows in 2 minibatches of 2 micro-batches."""
    rows = count_rows(5, 4, num_minibatches=2, accumulate=2, world=2, max_rows=8)
    assert (rows.iteration, rows.minibatch, rows.micro_batch, rows.group_in_micro_batch) == (12, 6, 3, 2)
    assert rows.rollout == 8
    assert count_rows(5, 4, 2, 2, 2, 8, rank=1).iteration == 8


def test_fsdp2_divides_by_the_processes_and_gathers_two_blocks():
    """Arithmetic by hand from the sizes of the policy."""
    one = build_plan([*WORDS, "trainer.accelerator=cuda"], Given(memory=10**9, trace=False))
    four = build_plan(
        [*WORDS, "trainer.accelerator=cuda", "trainer.devices=4", "strategy=fsdp2"], Given(memory=10**9, trace=False)
    )
    size = one.size
    block = size.largest_block
    assert size.blocks == 2 and size.root == size.parameter_bytes - 2 * block
    learn, step = four.ranks[0].phases["learn"], four.ranks[0].phases["step"]
    assert step["weights"] == -(-size.parameter_bytes // 4) + size.buffer_bytes
    assert step["gradients"] == -(-size.trainable_bytes // 4)
    assert step["optimiser state"] == -(-one.optimizer.state // 4)
    assert learn["unsharded weights"] == size.root + 2 * block == size.parameter_bytes
    assert [rank.name for rank in four.ranks] == ["rank 0", "each other rank"]
    assert four.ranks[0].host - four.ranks[1].host == size.bytes  # rank 0 alone loads the weights
    ddp = build_plan([*WORDS, "trainer.accelerator=cuda", "trainer.devices=4"], Given(memory=10**9, trace=False))
    assert ddp.ranks[0].host == ddp.ranks[1].host
    assert ddp.processes.strategy == "ddp" and ddp.ranks[1].phases["step"]["DDP buckets"] == size.trainable_bytes


def test_mixed_precision_gathers_weights_in_16_bits():
    words = [*WORDS, "trainer.accelerator=cuda", "trainer.devices=4", "strategy=fsdp2"]
    full, mixed = (
        build_plan([*words, f"trainer.precision={name}"], Given(10**9, trace=False))
        for name in ("32-true", "bf16-mixed")
    )
    for phase in ("rollout", "learn"):
        own, half = (made.ranks[0].phases[phase] for made in (full, mixed))
        assert own["unsharded weights"] == 4 * full.size.parameters == 2 * half["unsharded weights"]
        assert own["weights"] == half["weights"]  # the shards stay in fp32


def test_gradients_that_are_reduced_once_are_whole_until_then():
    words = [*WORDS, "trainer.accelerator=cuda", "trainer.devices=4", "strategy=fsdp2"]
    once = build_plan([*words, "strategy.no_sync=true", "trainer.accumulate_grad_batches=2"], Given(10**9, trace=False))
    learn = once.ranks[0].phases["learn"]
    assert learn["unsharded gradients"] == once.size.trainable_bytes
    alone = build_plan([*words, "strategy.no_sync=true"], Given(10**9, trace=False))  # one micro-batch
    assert alone.ranks[0].phases == build_plan(words, Given(10**9, trace=False)).ranks[0].phases


VISION = {
    **{"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14},
    **{"spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]},
}
TEXT = {
    "3B": {
        **{"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
        **{"num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    },
    "7B": {
        **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
        **{"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
    },
}
"""Published configurations of Qwen2.5-VL."""
IDS = {"image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652}


def count_parameters(text):
    """Parameters of Qwen2.5-VL by hand: 3,754,622,976 and 8,292,166,656 as published."""
    hidden, inner, heads = text["hidden_size"], text["intermediate_size"], text["num_attention_heads"]
    keys = text["num_key_value_heads"] * hidden // heads
    attention = 2 * hidden * hidden + hidden + 2 * (hidden * keys + keys)
    layer = attention + 3 * hidden * inner + 2 * hidden
    embeddings = text["vocab_size"] * hidden * (1 if text["tie_word_embeddings"] else 2)
    width, middle = VISION["hidden_size"], VISION["intermediate_size"]
    block = 4 * width * width + 4 * width + 3 * width * middle + 2 * middle + width + 2 * width
    merged = 4 * width
    merger = width + merged * merged + merged + merged * hidden + hidden
    patches = 3 * VISION["temporal_patch_size"] * VISION["patch_size"] ** 2 * width
    return embeddings + text["num_hidden_layers"] * layer + hidden + patches + VISION["depth"] * block + merger


@pytest.fixture(scope="module", params=["3B", "7B"])
def qwen(request, tmp_path_factory):
    """A folder with a config.json alone."""
    return write_qwen(request.param, tmp_path_factory.mktemp(request.param))


def write_qwen(name, folder):
    text = TEXT[name]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    vision = {**VISION, "out_hidden_size": text["hidden_size"]}
    config = {"model_type": "qwen2_5_vl", **IDS, **text, "rope_parameters": rope, "vision_config": vision}
    (folder / "config.json").write_text(json.dumps(config))
    return name, folder


def qwen_words(folder, *more):
    return (
        *("recipe=grpo", "capture=false", "task=digits", "policy=vlm", f"policy.path={folder}", "optimizer.lr=1e-6"),
        *("data.evaluation=null", "data.parity=null", *more),
    )


CARD = 80 * 10**9


@functools.cache
def fits(folder, *more, trace=False):
    """The plan of a run on cards of 80 GB, made once."""
    return build_plan(qwen_words(folder, *more), Given(memory=CARD, prompt_tokens=64, response_tokens=32, trace=trace))


def test_qwen_has_its_published_parameters(qwen):
    name, folder = qwen
    made = fits(folder)
    assert made.size.parameters == count_parameters(TEXT[name]) == {"3B": 3_754_622_976, "7B": 8_292_166_656}[name]
    assert made.size.blocks == TEXT[name]["num_hidden_layers"] + VISION["depth"]
    assert any("without images" in note or "not counted" in note for note in made.notes)


def test_full_training_with_fp32_adam_on_one_card(qwen):
    """16 bytes a parameter for weights, gradients and two moments, 4 for the roots in a step of torch's AdamW."""
    name, folder = qwen
    parameters = count_parameters(TEXT[name])
    step = fits(folder).ranks[0].phases["step"]
    tensors = step["optimiser state"] - 8 * parameters  # a step counter of 4 bytes for each tensor
    assert tensors == 4 * sum(fits(folder).size.trained.values())
    assert sum(step.values()) == 20 * parameters + tensors + fits(folder).size.buffer_bytes + CUDA_CONTEXT
    assert fits(folder).fits == (name == "3B")  # 76 of 80 GB, and 167 GB
    assert not fits(folder, "trainer.devices=4").fits  # DDP keeps a second copy of the gradients
    assert fits(folder, "trainer.devices=4", "optimizer.fused=true").fits == (name == "3B")


def test_full_training_fits_on_four_and_eight_cards_with_fsdp2(qwen):
    name, folder = qwen
    for count in (4, 8):
        made = fits(folder, f"trainer.devices={count}", "strategy=fsdp2")
        assert made.fits
        step = made.ranks[1].phases["step"]
        assert step["weights"] + step["gradients"] == pytest.approx(8 * count_parameters(TEXT[name]) / count, rel=1e-3)


def test_adapters_on_bf16_weights_fit_on_one_card(qwen):
    name, folder = qwen
    made = fits(folder, "policy.dtype=bfloat16", "policy.lora.r=16")
    assert made.fits and made.size.bytes_by_dtype["bfloat16"] == 2 * count_parameters(TEXT[name])
    assert made.size.trainable_bytes == 4 * made.size.trainable < made.size.parameters / 10


@pytest.mark.parametrize(("name", "count", "enough"), [("3B", 4, True), ("7B", 8, True), ("7B", 4, False)])
def test_full_training_in_mixed_precision_fits_on_the_gpus_that_easyr1_names(name, count, enough, tmp_path):
    """EasyR1's estimate for GRPO with AMP: 4 GPUs of 40 GB for 3B, 8 for 7B; 4 for 7B with 16-bit weights alone.

    Source: README of hiyouga/EasyR1, hardware requirements.
    """
    _, folder = write_qwen(name, tmp_path)
    words = ("strategy=fsdp2", "trainer.precision=bf16-mixed", "optimizer.fused=true", "model.reference=true")
    words += ("data.pipeline=[reference, group_advantage]", f"trainer.devices={count}")
    assert build_plan(qwen_words(folder, *words), Given(memory=CARD // 2, trace=False)).fits == enough


def test_activations_of_7b_fit_beside_its_shards(tmp_path):
    _, folder = write_qwen("7B", tmp_path)
    words = (
        "trainer.devices=8",
        "strategy=fsdp2",
        "policy.gradient_checkpointing=true",
        "trainer.accumulate_grad_batches=32",
    )
    made = fits(folder, *words, "engine.max_rows=8", trace=True)
    learn = made.ranks[0].phases["learn"]
    assert made.fits and learn["activations"] < made.without_checkpointing.activations


def test_the_report_says_what_to_change(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("num_prompts=2", "num_prompts=32") for word in WORDS]
    assert main(["plan", *words, "--memory", "900MB", "--prompt-tokens", "64"]) == 0
    shown = capsys.readouterr().out
    assert "does not fit" in shown and "trainer.accumulate_grad_batches=4: " in shown and "no estimate" in shown
    for word in ("rollout", "annotate", "learn", "weights", "optimiser state", "KV cache", "activations", "sum"):
        assert word in shown
    assert max(map(len, (line for line in shown.splitlines() if "sum" in line))) <= 160
    assert not list(tmp_path.iterdir())  # a plan writes nothing


def test_json_has_the_same_numbers(capsys):
    assert main(["plan", *WORDS, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (rank,) = shown["ranks"]
    assert rank["peak"] == max(sum(phase.values()) for phase in rank["phases"].values())
    assert shown["fits"] and shown["processes"]["strategy"] == "single" and shown["seconds"] is None
    assert shown["activations"]["with_checkpointing"]["activations"] > 0


def test_seconds_are_scaled_from_a_run(tmp_path, monkeypatch, capsys):
    """Twice the prompts are twice the seconds of every phase but the transfer of weights."""
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *WORDS, "run_dir=run"]) == 0
    measured = read_seconds(tmp_path / "run" / "metrics.csv")
    capsys.readouterr()
    twice = [word.replace("num_prompts=2", "num_prompts=4") for word in WORDS]
    assert main(["plan", *twice, "--from", "run", "--json"]) == 0
    seconds = json.loads(capsys.readouterr().out)["seconds"]
    for name, value in measured.items():
        assert seconds["phases"][name] == pytest.approx(value * (1 if name == "sync" else 2))
    assert "parameters times tokens" in seconds["assumptions"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recipe=sac", "sim=gym", "sim.id=Pendulum-v1"], "replay buffer"),
        ([*WORDS, "--memory", "much"], "give a size such as 80GB"),
        ([*WORDS, "--from", "nowhere"], "no metrics.csv"),
        ([*WORDS, "--prompt-tokens", "0"], "whole number of tokens"),
        ([*WORDS, "trainer.accelerator=cuda"], "--memory 80GB"),
        ([*WORDS, "trainer.devices=2", "trainer.strategy=deepspeed"], "trainer.strategy=deepspeed"),
    ],
    ids=["off-policy", "memory", "from", "tokens", "no card", "strategy"],
)
def test_what_cannot_be_planned_is_refused_by_name(arguments, message, capsys):
    assert main(["plan", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_sizes_are_parsed():
    assert (parse_bytes("80GB"), parse_bytes("24 GiB"), parse_bytes("1.5mb")) == (80 * 10**9, 24 * 2**30, 1_500_000)
    assert parse(["--memory=8GiB", "recipe=grpo"]).words == ["recipe=grpo"]


def test_a_plan_needs_no_weights(tmp_path):
    """A folder with configuration and tokenizer alone has the plan of the same policy with weights."""
    policy = TextPolicy(config=dict(CONFIG))
    policy.save_pretrained(tmp_path / "whole")
    (tmp_path / "bare").mkdir()
    for file in (tmp_path / "whole").iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / "bare" / file.name).write_bytes(file.read_bytes())
    found = [
        build_plan([*WORDS[:-1], "policy=text", f"policy.path={tmp_path / name}"], Given())
        for name in ("whole", "bare")
    ]
    assert found[0].ranks == found[1].ranks and found[0].size == measure_module(copy.deepcopy(policy))


def test_the_plan_is_returned():
    assert plan([*WORDS, "--json"]).fits


def test_a_vllm_in_each_process_takes_memory_while_it_samples():
    """Servers take it from rank 0's devices alone, and keep it."""
    words = ["recipe=grpo", "policy=tiny_text", "trainer.devices=4", "strategy=fsdp2"]
    given, share = Given(memory=80 << 30, trace=False), round(0.5 * (80 << 30))
    first, deep, servers, broadcast, remote = (
        build_plan([*words, *more], given)
        for more in (
            ["engine=vllm", "engine.backend.memory_share=0.5"],
            ["engine=vllm", "engine.backend.memory_share=0.5", "engine.backend.sleep_level=2"],
            ["engine=vllm_server", "engine.memory_share=0.5"],
            ["engine=vllm_server", "engine.memory_share=0.5", "engine.transfer=broadcast"],
            ["engine=vllm_server", "engine.urls=[http://a:1]", "engine.transfer=broadcast"],
        )
    )
    for rank in first.ranks:
        assert rank.phases["rollout"]["engine"] == share and "engine" not in rank.phases["learn"] and rank.files == 0
    assert first.ranks[1].host - deep.ranks[1].host == first.ranks[1].sync
    assert servers.ranks[0].phases["learn"]["engine"] == share and servers.ranks[0].files >= 3 * servers.ranks[0].sync
    assert "engine" not in servers.ranks[1].phases["learn"] and servers.ranks[1].files == 0
    own, others = broadcast.ranks[0], broadcast.ranks[1]  # rank 0 keeps a copy for servers that are restarted
    difference = servers.ranks[0].host - servers.ranks[1].host
    assert own.files == others.files == 0 and own.host - others.host - difference == own.sync == servers.ranks[0].sync
    assert remote.ranks[0].files == 0 and remote.ranks[0].host - remote.ranks[1].host == difference
