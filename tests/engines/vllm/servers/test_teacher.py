"""vLLM's own server as the teacher: the term of the teacher in the process, and the log-probs of spans."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Sampling
from mmrl.methods.offline.teacher_server.annotators import SpanAdvantage, TeacherTopLogprobs
from mmrl.methods.offline.teacher_server.term import ServerGKDLoss
from mmrl.objectives.distillation import GKDLoss
from tests.checkpoints import TEXT
from tests.engines.vllm.servers.openai_server import serve
from tests.methods.offline.teacher_server.test_distillation import PROMPTS, build, context, gradients
from tests.policies.text.oracle import batch_of, completions

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The teacher, and the address of a vLLM server with its weights."""
    teacher, folder = build(1, TEXT), tmp_path_factory.mktemp("teacher")
    teacher.save_pretrained(folder)
    with serve(folder, "teacher", "--max-logprobs", "-1", "--max-model-len", "256") as url:
        yield teacher, url


def test_vllm_gives_the_term_of_the_teacher_in_the_process(server):
    teacher, url = server
    student = build(0, TEXT)
    batch = batch_of(student, PROMPTS * 2, completions(student, PROMPTS * 2, Sampling(max_tokens=7)))
    expected, _ = gradients(GKDLoss(0.5), student, batch, teacher)
    ctx, _ = context(student, url, top_k=-1)
    value, _ = gradients(ServerGKDLoss(0.5), student, TeacherTopLogprobs()(batch, ctx))
    assert_close(value, expected, atol=1e-5, rtol=1e-5)  # two implementations in float32


def test_vllm_gives_the_log_probs_of_spans(server):
    teacher, url = server
    student = build(0, TEXT)
    batch = batch_of(
        student, PROMPTS * 2, completions(student, PROMPTS * 2, Sampling(max_tokens=7, regex="[a-z0-9 ]{5}"))
    )
    ctx, _ = context(student, url)
    advantages = SpanAdvantage(limit=1000.0)(batch, ctx)["advantages"]
    with torch.no_grad():
        expected = teacher(batch.select(torch.arange(batch.rows))).extra["full_logprobs"] - batch["behavior_logprobs"]
    assert_close(advantages[:, :5], expected[:, :5], atol=1e-4, rtol=1e-4)
