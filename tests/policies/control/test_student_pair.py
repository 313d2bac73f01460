"""Two students in one policy: weights apart, gradients of one's own rows alone, and a folder that loads."""

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.control.student_pair import StudentPairPolicy


def build(**options):
    torch.manual_seed(0)
    return StudentPairPolicy(5, 3, hidden=[8, 8], **options)


def rows(student, count=6):
    torch.manual_seed(1)
    state = torch.randn(count, 5)
    state[:, -1] = torch.as_tensor(student)
    ones = torch.ones(count)
    return Batch({"obs.state": state, "action": torch.zeros(count, 1, dtype=torch.long), "temperature": ones})


@pytest.mark.parametrize("student", [0, 1])
def test_a_row_trains_its_own_student(student):
    policy = build()
    output = policy(rows(student))
    (output.logprobs.sum() + output.values.sum()).backward()
    for network, last in ((policy.actor, policy.head.linear), (policy.critic, policy.value_net)):
        for number, branch in enumerate(network.branches):
            moved = any(weight.grad is not None and weight.grad.abs().max() > 0 for weight in branch.parameters())
            assert moved == (number == student)
        half = network.width // 2
        own, other = last.weight.grad.split(half, dim=1)[:: 1 if student == 0 else -1]
        assert own.abs().max() > 0 and other.abs().max() == 0
        assert last.bias.grad is None and (last.bias == 0).all()


def test_the_students_are_two_networks():
    """Rows of both at once give what rows of each alone give, and the same state does not give the same."""
    policy = build()
    both = policy(rows([0, 1, 0, 1, 0, 1]))
    for student in (0, 1):
        alone = policy(rows(student))
        torch.testing.assert_close(both.values[student::2], alone.values[student::2])
        torch.testing.assert_close(both.logprobs[student::2], alone.logprobs[student::2])
    assert (policy(rows(0)).values - policy(rows(1)).values).abs().min() > 1e-4


def test_a_student_is_a_plain_network_on_the_state_without_its_number():
    policy, batch = build(), rows(1)
    features = policy.actor.branches[1](batch["obs.state"][:, :-1])
    weight = policy.head.linear.weight[:, policy.actor.width // 2 :]
    logits = features @ weight[:, :-1].T + weight[:, -1]
    expected = torch.log_softmax(logits, dim=-1)[:, :1]
    torch.testing.assert_close(policy(batch).logprobs, expected)


def test_it_acts_and_is_loaded_from_a_folder(tmp_path):
    policy = build()
    policy.save_pretrained(tmp_path)
    loaded = StudentPairPolicy(path=str(tmp_path))
    batch = rows([0, 1, 0, 1, 0, 1])
    torch.testing.assert_close(loaded(batch).values, policy(batch).values)
    action = loaded.act(batch.observation(), Sampling(), Noise(torch.arange(6)))
    assert action.action.shape == (6, 1) and action.values.shape == (6,)


def test_real_actions_are_refused():
    with pytest.raises(ValueError, match=r"numbered actions \(kind=categorical\), got gaussian"):
        StudentPairPolicy(5, 3, kind="gaussian")
