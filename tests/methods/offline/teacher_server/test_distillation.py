"""Distillation from a teacher on a server: equal to the teacher in the process, and by spans for another tokenizer."""

import math
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.types import Collector, Prompt, Sampling
from mmrl.methods.offline.teacher_server import client
from mmrl.methods.offline.teacher_server.annotators import SpanAdvantage, TeacherTopLogprobs
from mmrl.methods.offline.teacher_server.client import TeacherFailure
from mmrl.methods.offline.teacher_server.spans import Span, align_spans, span_ratios
from mmrl.methods.offline.teacher_server.teacher import ServerTeacher
from mmrl.methods.offline.teacher_server.term import ServerGKDLoss
from mmrl.objectives.distillation import GKDLoss
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.statistics import ChoiceLogprobs
from tests.laws.example import Example
from tests.methods.offline.teacher_server.completions_server import Completions, serve
from tests.policies.text.oracle import TINY, batch_of, completions, decided

LAWS = [
    *(Example(ServerGKDLoss(beta)) for beta in (0.0, 0.3, 1.0)),
    Example(TeacherTopLogprobs(), scores=True),
    Example(SpanAdvantage(), scores=True),
]
PROMPTS = [
    Prompt(f"text/train/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(("1+1=", "abc", "x"))
]


def build(seed, config=TINY):
    torch.manual_seed(seed)
    return decided(
        TextPolicy(config={"model_type": "qwen2", **config}, statistics={"choice_logprobs": ChoiceLogprobs()}), 3.0
    ).eval()


@pytest.fixture(scope="module")
def student():
    return build(0)


@pytest.fixture(scope="module")
def teacher():
    return build(1)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)


@pytest.fixture(scope="module")
def batch(student):
    return batch_of(student, PROMPTS * 2, completions(student, PROMPTS * 2, Sampling(max_tokens=7)))


def context(student, url, **options):
    model = ServerTeacher(url, **options)
    return SimpleNamespace(models={"teacher": model}, policy=student, collector=Collector()), model


def gradients(term, student, batch, teacher=None):
    """The term [N, T], and the gradient of its sum by parameter."""
    out = student(batch)
    if teacher is not None:
        with torch.no_grad():
            out.others["teacher"] = teacher(batch)
    value = term(out, batch)
    parameters = [part for part in student.parameters() if part.requires_grad]
    return value.detach(), torch.autograd.grad(value.sum(), parameters, allow_unused=True)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_at_full_k_the_term_and_its_gradient_are_those_of_the_teacher_in_the_process(student, teacher, batch, beta):
    expected, slopes = gradients(GKDLoss(beta), student, batch, teacher)
    with serve(Completions(teacher)) as url:
        ctx, _ = context(student, url, top_k=-1)
        annotated = TeacherTopLogprobs()(batch, ctx)
    assert annotated["teacher_ids"].shape == (*batch["action"].shape, len(student.tokenizer))
    value, computed = gradients(ServerGKDLoss(beta), student, annotated)
    assert_close(value, expected, atol=1e-6, rtol=1e-6)
    assert expected[batch["action_mask"]].min() > 0.01
    for one, other in zip(computed, slopes, strict=True):
        if other is not None:
            assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_with_fewer_tokens_it_is_the_divergence_of_the_coarser_distributions(student, teacher, batch):
    """Brute force: both distributions with all ids that were not reported summed into one, at every choice."""
    with serve(Completions(teacher)) as url:
        ctx, _ = context(student, url, top_k=3)
        annotated = TeacherTopLogprobs()(batch, ctx)
    with torch.no_grad():
        out, truth = student(batch), teacher(batch).extra["choice_logprobs"].exp()
        value = ServerGKDLoss(0.0)(out, annotated)
        whole = (truth * (truth.log() - out.extra["choice_logprobs"])).sum(-1)
    for n, t in batch["action_mask"].nonzero().tolist():
        ids = [i for i in annotated["teacher_ids"][n, t].tolist() if i >= 0]
        assert 3 <= len(ids) <= 4 and set(truth[n, t].topk(3).indices.tolist()) <= set(ids)
        p, q = truth[n, t].double(), out.extra["choice_logprobs"][n, t].double().exp()
        pairs = [(p[i], q[i]) for i in ids] + [(1 - p[ids].sum(), 1 - q[ids].sum())]
        expected = sum(float(a * (a / b).log()) for a, b in pairs)
        assert float(value[n, t]) == pytest.approx(expected, abs=2e-5)
        assert float(value[n, t]) < float(whole[n, t])


def test_requests_are_limited_repeated_and_counted(student, teacher, batch):
    app = Completions(teacher, statuses=[503, 429, 500])
    with serve(app) as url:
        ctx, _ = context(student, url, top_k=2, connections=2)
        annotator = TeacherTopLogprobs()
        annotated = annotator(batch, ctx)
        metrics = annotator.metrics(annotated, ctx)
    assert app.most <= 2 and len(app.bodies) == batch.rows + 3
    expected = int(batch["obs.attention_mask"].sum() + batch["action_mask"].sum())
    assert metrics["requests"] == batch.rows and metrics["retried"] == 3 and metrics["tokens"] == expected
    assert metrics["seconds"] > 0 and annotator.metrics(annotated, ctx)["requests"] == 0
    assert {body["model"] for body in app.bodies} == {"teacher"}


def test_clear_errors(student, teacher, batch, tmp_path):
    def ask(app, models=("teacher",), **options):
        with serve(app, models) as url:
            ctx, _ = context(student, url, retries=1, **options)
            return TeacherTopLogprobs()(batch, ctx)

    with pytest.raises(TeacherFailure, match=r"teacher\.url=http.*answered 400: .*not now"):
        ask(Completions(teacher, statuses=[400] * 20))
    with pytest.raises(TeacherFailure, match="answered 503"):
        ask(Completions(teacher, statuses=[503] * 40))
    with pytest.raises(TeacherFailure, match=r"prompt_logprobs.*method=span_distillation"):
        ask(Completions(teacher, without=("prompt_logprobs",)))
    with pytest.raises(TeacherFailure, match=r"\['a', 'b'\]; choose one with teacher\.model"):
        ask(Completions(teacher), models=("a", "b"))
    with pytest.raises(TeacherFailure, match="does not answer"):
        ctx, _ = context(student, "http://127.0.0.1:9", retries=0)
        TeacherTopLogprobs()(batch, ctx)
    with pytest.raises(ValueError, match=r"sampling\.temperature=1"):
        TeacherTopLogprobs()(batch.with_columns(temperature=torch.full((batch.rows,), 0.7)), ctx)
    for options, message in (
        ({"url": "localhost:8000"}, r"teacher\.url"),
        ({"url": "http://x", "top_k": 0}, r"teacher\.top_k"),
        ({"url": "http://x", "connections": 0}, r"teacher\.connections"),
        ({"url": "http://x", "timeout_s": 0}, r"teacher\.timeout_s"),
    ):
        with pytest.raises(ValueError, match=message):
            ServerTeacher(**options)
    (tmp_path / "token").write_text("secret\n")
    app = Completions(teacher)
    ask(app, token_file=str(tmp_path / "token"))
    assert {headers["Authorization"] for headers in app.headers} == {"Bearer secret"}
    wrong = Batch(
        action_mask=torch.ones(1, 1).bool(), teacher_ids=torch.tensor([[[9]]]), teacher_logprobs=torch.zeros(1, 1, 1)
    )
    with pytest.raises(ValueError, match="another tokenizer"):
        ServerGKDLoss()(SimpleNamespace(extra={"choice_logprobs": torch.zeros(1, 1, 3)}), wrong)


# ---------------------------------------------------------------- another tokenizer


def test_spans_by_hand():
    """Prompt "Q:"; student "th|e| cat|s", teacher "Q|:t..." cannot be cut at the prompt, "the| ca|ts" can."""
    assert align_spans(["th", "e", " cat", "s"], ["Q:", "the", " ca", "ts"], 2) == [
        Span((0, 2), (1, 2)),
        Span((2, 4), (2, 4)),
    ]
    # the teacher's second token begins in the prompt: its span, and the student's first two tokens, are left out
    assert align_spans(["th", "e", " cat", "s"], ["Q", ":the", " cat", "s"], 2) == [
        Span((2, 3), (2, 3)),
        Span((3, 4), (3, 4)),
    ]
    # a character of two tokens, of which the first has no text
    assert align_spans(["a", "", "é"], ["a", "é"]) == [Span((0, 1), (0, 1)), Span((1, 3), (1, 2))]
    with pytest.raises(ValueError, match="differ"):
        align_spans(["ab"], ["a"])


def test_log_probs_of_spans_by_hand():
    """log p of "the" is -0.5 for the teacher and -1 - 2 for the student; of " cats" -1 - 0.25 and -0.5 - 0.125."""
    ratios = span_ratios(
        ["th", "e", " cat", "s"], [-1.0, -2.0, -0.5, -0.125], ["<s>", "Q:", "the", " ca", "ts"],
        [None, -9.0, -0.5, -1.0, -0.25], "Q:",
    )  # fmt: skip
    assert ratios == [((0, 2), 2.5), ((2, 4), -0.625)]
    assert span_ratios(["a"], [-1.0], ["b"], [-1.0], "") == []


def test_with_the_same_tokenizer_every_token_is_a_span(student, teacher, batch):
    with serve(Completions(teacher)) as url:
        ctx, _ = context(student, url)
        advantages = SpanAdvantage(limit=100.0)(batch, ctx)["advantages"]
    with torch.no_grad():
        expected = teacher(batch).logprobs - batch["behavior_logprobs"]
    special = torch.isin(batch["action"], torch.tensor(student.tokenizer.all_special_ids))
    inside = batch["action_mask"] & (special.cumsum(1) == 0)
    assert_close(advantages[inside], expected[inside], atol=1e-4, rtol=1e-4)
    assert not advantages[~inside].any() and inside.sum() > 20


def pairs_tokenizer(base):
    """The characters of a tokenizer, and merges of some pairs of them."""
    vocabulary = dict(base.get_vocab())
    merges = [(a, b) for a in "0123456789abcde" for b in "0123456789+=abcde"]
    for a, b in merges:
        vocabulary[a + b] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )


def test_a_teacher_of_another_tokenizer_gives_spans(student):
    """Oracle: the teacher's log-probs of its own tokens, summed over each span by hand."""
    tokenizer = pairs_tokenizer(student.tokenizer)
    torch.manual_seed(2)
    other = TextPolicy(config=TINY)
    other.model.resize_token_embeddings(len(tokenizer))
    other.processor = tokenizer
    done = completions(student, PROMPTS, Sampling(max_tokens=8, regex="[0-9a-e]{6}"))
    batch = batch_of(student, PROMPTS, done)
    with serve(Completions(other)) as url:
        ctx, _ = context(student, url)
        advantages = SpanAdvantage(limit=1000.0)(batch, ctx)["advantages"]
    for n, prompt in enumerate(("1+1=", "abc", "x")):
        text = done[n].output
        ids = tokenizer.encode(prompt + text)
        with torch.no_grad():
            scores = other.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        end, position, covered = 0, 0, 0
        for place, token in enumerate(ids):
            begin, end = end, end + len(tokenizer.decode([token]))
            if begin < len(prompt):
                continue
            low, high = begin - len(prompt), end - len(prompt)  # the student's tokens are characters
            theirs = float(scores[place - 1, token])
            expected = theirs - float(batch["behavior_logprobs"][n, low:high].sum())
            assert_close(advantages[n, low:high], torch.full((high - low,), expected), atol=1e-4, rtol=1e-4)
            covered, position = covered + high - low, position + 1
        assert position < covered  # some spans have several of the student's tokens
        assert not advantages[n, len(text) :].any()


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("method", ["gkd_server", "span_distillation"])
def test_a_run_comes_nearer_to_its_teacher(method, teacher, tmp_path):
    setting = "demonstrations" if method == "gkd_server" else "sums"
    words = (
        f"method={method}", f"setting={setting}", *(f"policy.config.{name}={value}" for name, value in TINY.items()
        if name not in ("model_type", "tie_word_embeddings")), "trainer.callbacks.warm_start.stages=null",
        "trainer.callbacks.progress=null", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false",
        "trainer.logger=false", "trainer.max_epochs=6", "data.num_prompts=8", "data.num_minibatches=1",
        "data.sampling.max_tokens=4", "data.evaluation=null", "optimizer.lr=3e-3", "data.group_size=2",
        "teacher.retries=0", f"run_dir={tmp_path}/run",
    )  # fmt: skip
    with serve(Completions(teacher)) as url:
        cli = CLI(to_lightning(compose([*words, f"teacher.url={url}"])))
        policy = cli.model.policy

        def distance():
            prompts = [Prompt(f"text/train/{i}", ({"role": "user", "content": f"{i}+{i}="},)) for i in range(8)]
            batch = batch_of(policy, prompts, completions(teacher, prompts, Sampling(max_tokens=4)))
            with torch.no_grad():
                return float((teacher(batch).logprobs - policy(batch).logprobs)[batch["action_mask"]].mean())

        before = distance()
        cli.fit()
    assert math.isfinite(before) and distance() < before
