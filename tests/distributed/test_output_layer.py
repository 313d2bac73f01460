"""An output layer in chunks under sharded weights: its gradient is that of one process with whole logits."""

import copy

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from mmrl.core.types import Sampling
from mmrl.distributed.fsdp2 import mixed_precision
from mmrl.distributed.sharding import gather_weights, shard
from mmrl.policies.text.packing import output_layer
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY, batch_of, completions
from tests.policies.text.test_policy import PROMPTS
from tests.runs.processes import start
from tests.tiny_recipes import free_port, whole

RANKS, MAX_LOGITS = 2, 700


def learn(policy, batch, rank=0, ranks=1):
    """The gradient of the mean over the rows of all processes."""
    rows = torch.arange(rank, batch.rows, ranks)
    out = policy(batch.select(rows))
    ((out.logprobs + 0.1 * out.entropy)[batch["action_mask"][rows]].sum() * ranks / batch.rows).backward()
    return {name: whole(p.grad) for name, p in policy.named_parameters()}


def compare(rank, port, tied, precision):
    """In one of two processes, on half of the rows."""
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain = TextPolicy(config={**TINY, "tie_word_embeddings": tied})
    done = completions(plain, PROMPTS, Sampling(max_tokens=9))
    batch = batch_of(plain, PROMPTS, done)
    sharded = copy.deepcopy(plain)
    sharded.output_layer = output_layer.OutputLayer(MAX_LOGITS)
    passes, apply = [], output_layer.apply_in_chunks

    def count(layer, hidden, score, rows):
        passes.append(len(hidden) // rows)
        return apply(layer, hidden, score, rows)

    output_layer.apply_in_chunks = count
    shard(sharded, init_device_mesh("cpu", (RANKS,)), mixed_precision(precision))
    with gather_weights(sharded):
        assert sharded.output_layer._exact  # measured, while calls communicate nothing
    assert all(hasattr(parameter, "to_local") for parameter in sharded.parameters())
    for _ in range(2):  # the second pass begins with sharded weights again
        sharded.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
            found = learn(sharded, batch, rank, RANKS)
    assert len(passes) == 2 and passes[0] > 1
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
        expected = learn(plain, batch)
    assert len(passes) == 2
    for name, gradient in found.items():
        if precision == "32-true":
            assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)
        else:
            assert (gradient - expected[name]).norm() < 0.05 * expected[name].norm() + 1e-6
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_gradients_of_sharded_weights(tied, precision):
    port = free_port()
    processes = [start(compare, rank, port, tied, precision) for rank in range(RANKS)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * RANKS
