"""Distillation from a server without one: answers as they are read, spans, advantages and the divergence by hand."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.methods.offline.teacher_server import client
from mmrl.methods.offline.teacher_server.annotators import SpanAdvantage
from mmrl.methods.offline.teacher_server.client import CompletionsClient, TeacherFailure
from mmrl.methods.offline.teacher_server.spans import span_ratios
from mmrl.methods.offline.teacher_server.teacher import ServerTeacher
from mmrl.methods.offline.teacher_server.term import ServerGKDLoss

TEACHER = ServerTeacher("http://127.0.0.1:1")


def client_of(answers, model="m"):
    asking = CompletionsClient("http://127.0.0.1:1", model, None, 1, 1.0, 0)
    asking._client = SimpleNamespace(ask_all=lambda path, bodies, read, counts: answers)
    return asking


def test_advantages_are_bounded_on_both_sides_and_0_at_forced_choices():
    model = SimpleNamespace(span_advantages=lambda batch, policy: torch.tensor([[30.0, -30.0, 5.0, 7.0]]))
    ctx = SimpleNamespace(models={"teacher": model}, policy=None)
    batch = Batch(action_mask=torch.tensor([[True, True, True, False]]))
    assert SpanAdvantage()(batch, ctx)["advantages"].tolist() == [[20, -20, 5, 0]]


def test_tokens_that_a_server_does_not_report_are_not_counted(monkeypatch):
    clock = iter([10.0, 12.5])
    monkeypatch.setattr(client, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    asking = client_of([{}, {"usage": None}, {"usage": {"prompt_tokens": None}}, {"usage": {"prompt_tokens": 7}}])
    asking.ask_all([{}] * 4)
    assert asking.take_counts() == {"requests": 4, "retried": 0, "tokens": 7, "seconds": 2.5}


def test_a_server_that_names_no_model_is_refused():
    with pytest.raises(TeacherFailure, match=r"serves the models \[\]"):
        client_of([{}], model=None).ask_all([{}])


def test_a_span_whose_first_token_has_no_log_prob_is_left_out():
    assert span_ratios(["ab", "c"], [-1.0, -0.5], ["a", "b", "c"], [None, -0.5, -0.25], "") == [((1, 2), 0.25)]


def test_log_probs_of_ids_are_read_from_the_choice_or_beside_it():
    """The first token has none; vLLM has put them beside the choices too."""
    places = [None, {"5": {"logprob": -0.5}, "3": {"logprob": -1.5}}]
    for answer in ({"choices": [{"prompt_logprobs": places}]}, {"choices": [{}], "prompt_logprobs": places}):
        assert TEACHER._read_ids(answer, 2) == [{5: -0.5, 3: -1.5}]
        with pytest.raises(TeacherFailure, match="for 3 prompt tokens"):
            TEACHER._read_ids(answer, 3)


def test_a_text_ends_where_its_tokens_do():
    """A server echoes the text and one token of its own; without a count that is the last one."""
    choice = {"logprobs": {"tokens": ["a", "b", "c"], "token_logprobs": [None, -1.0, -2.0]}}
    assert TEACHER._read_text({"choices": [choice], "usage": {"prompt_tokens": 1}}) == (["a"], [None])
    for usage in (None, {}, {"prompt_tokens": None}):
        assert TEACHER._read_text({"choices": [choice], "usage": usage}) == (["a", "b"], [None, -1.0])
    shorter = {"logprobs": {"tokens": ["a", "b"], "token_logprobs": [None]}}
    for wrong in ({"logprobs": None}, {"logprobs": {"tokens": ["a"]}}, shorter):
        with pytest.raises(TeacherFailure, match="reports no log-probs of the prompt"):
            TEACHER._read_text({"choices": [wrong]})


@pytest.mark.parametrize(
    ("beta", "student", "ids", "teacher", "divergence"),
    [
        # the others have 1/2 and 3/4: .5 log 2 + .5 log(2/3), and .25 log(1/2) + .75 log(3/2)
        (0.0, (0.25, 0.5, 0.25), (0, -1), (0.5, 0.3), 0.143841),
        (1.0, (0.25, 0.5, 0.25), (0, -1), (0.5, 0.3), 0.130812),
        # every id is reported: .5 log 2 + .25 log(1/2)
        (0.0, (0.25, 0.5, 0.25), (0, 1, 2), (0.5, 0.25, 0.25), 0.173287),
        # nothing remains for the others, which have 1e-12: .5 log 2 twice, and .5 log(1/2) + .5 log(5e11)
        (0.0, (0.25, 0.25, 0.5), (0, 1), (0.5, 0.5), 0.693147),
        (1.0, (0.25, 0.25, 0.5), (0, 1), (0.5, 0.5), 13.122363),
    ],
)
def test_the_divergence_of_reported_tokens_by_hand(beta, student, ids, teacher, divergence):
    logprobs = torch.tensor([[student, (0.2, 0.2, 0.6)]]).log().requires_grad_()
    batch = Batch(
        action_mask=torch.tensor([[True, False]]),
        teacher_ids=torch.tensor([[ids, ids]]),
        teacher_logprobs=torch.tensor([[teacher, teacher]]).log(),
    )
    loss = ServerGKDLoss(beta)(SimpleNamespace(extra={"choice_logprobs": logprobs}), batch)
    assert_close(loss.detach(), torch.tensor([[divergence, 0.0]]), atol=2e-5, rtol=0)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    assert gradient[0, 0].abs().min() > 0 and not gradient[0, 1].any()  # of all ids, also those of the rest
