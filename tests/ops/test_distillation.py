"""The generalised Jensen-Shannon divergence on numbers worked out by hand."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.distillation import generalised_jsd

STUDENT, TEACHER = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.8, 0.2]]).log()


@pytest.mark.parametrize(
    "beta, value",
    [
        (0.0, 0.8 * math.log(1.6) + 0.2 * math.log(0.4)),  # KL(teacher || student)
        (1.0, 0.5 * math.log(0.625) + 0.5 * math.log(2.5)),  # KL(student || teacher)
        # mixture 0.65 0.35: half of 0.8 log(0.8 / 0.65) + 0.2 log(0.2 / 0.35) = 0.054188, half of
        # 0.5 log(0.5 / 0.65) + 0.5 log(0.5 / 0.35) = 0.047155
        (0.5, 0.050672),
    ],
)
def test_by_hand(beta, value):
    assert generalised_jsd(STUDENT, TEACHER, beta).item() == pytest.approx(value, abs=1e-6)
    assert generalised_jsd(TEACHER, TEACHER, beta).item() == pytest.approx(0, abs=1e-7)


def test_the_ends_are_the_limits():
    student, teacher = STUDENT.double(), TEACHER.double()
    for beta, scale in ((1e-6, 1e-6), (1 - 1e-6, 1e-6)):
        near = generalised_jsd(student, teacher, beta) / scale
        assert_close(near, generalised_jsd(student, teacher, round(beta)), atol=1e-5, rtol=0)


def test_ids_that_cannot_be_chosen_leave_value_and_gradient_finite():
    student = torch.tensor([[0.0, 1.0, -1e4]], requires_grad=True)
    for beta in (0.0, 0.5, 1.0):
        loss = generalised_jsd(student.log_softmax(-1), torch.tensor([[0.0, -1e4, -1e4]]).log_softmax(-1), beta)
        loss.sum().backward()
        assert loss.isfinite().all() and student.grad.isfinite().all()
