"""Goal-conditioned reward model: the moving average of preferred ends, and the loss of a batch of pairs, by hand."""

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.preferences.goal_conditioned.reward_model import GOAL_FILE, GoalContrastiveLoss, GoalScoringPolicy
from mmrl.policies.text.scorer import ScoringPolicy
from tests.policies.text.oracle import TINY

MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
WIDTH = TINY["hidden_size"]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return GoalScoringPolicy(config=dict(TINY), momentum=0.75)


def states_of(*ends):
    """States [4, 4, D] of 50 but at the last token of each row, whose first number is 0 and the others its end."""
    states = torch.full((4, 4, WIDTH), 50.0)
    for row, (end, last) in enumerate(zip(ends, (2, 3, 1, 0), strict=True)):
        states[row, last] = end
        states[row, last, 0] = 0
    return states.requires_grad_()


def forward(policy, monkeypatch, ends, **columns):
    states, scores = states_of(*ends), torch.tensor([[0.5], [1.0], [1.5], [2.0]])
    monkeypatch.setattr(policy, "_states", lambda observation: (states, scores))
    observation = {"input_ids": torch.ones(4, 4).long(), "attention_mask": MASK, "start": torch.tensor([1, 2, 0, 0])}
    inputs = {f"obs.{name}": column for name, column in observation.items()}
    return policy(Batch(**inputs, action=torch.zeros(4, 1).long(), **columns)), observation


def test_the_goal_is_the_moving_average_of_the_ends_of_preferred_answers(policy, monkeypatch):
    """Ends 1 and 3 are preferred: 2. Then 4 and 8: .75 * 2 + .25 * 6 = 3. A number that is 0 does not begin anew."""
    sides = {"preference": torch.tensor([1.0, -1.0, 1.0, 0.0])}
    policy.train()
    policy.goal.zero_()
    for ends, goal in (((1, 90, 3, 70), 2.0), ((4, 90, 8, 70), 3.0)):
        out, _ = forward(policy, monkeypatch, ends, **sides)
        assert_close(policy.goal, torch.tensor([0.0] + [goal] * (WIDTH - 1)))
    assert not policy.goal.requires_grad
    assert out.values.tolist() == [0.5, 1.0, 1.5, 2.0]
    assert out.extra["token_places"].tolist() == [[1, 2], [2, 3], [0, 1], [0, 0]]
    # nothing is preferred, pairs are not known, or nothing is trained
    forward(policy, monkeypatch, (5, 5, 5, 5), preference=torch.tensor([-1.0, -1.0, 0.0, 0.0]))
    forward(policy, monkeypatch, (5, 5, 5, 5))
    policy.eval()
    forward(policy, monkeypatch, (5, 5, 5, 5), **sides)
    assert_close(policy.goal, torch.tensor([0.0] + [3.0] * (WIDTH - 1)))


def test_q_has_a_gradient_to_the_last_states(policy, monkeypatch):
    policy.goal.copy_(torch.arange(WIDTH))
    monkeypatch.setattr(policy, "scored_by", "goal")
    _, observation = forward(policy, monkeypatch, (1, 1, 1, 1))
    states, _ = policy._states(observation)
    (gradient,) = torch.autograd.grad(policy.head_scores(observation).sum(), states)
    touched = gradient.abs().sum(-1) > 0
    assert touched.tolist() == [[t == last for t in range(4)] for last in (2, 3, 1, 0)]


def test_the_goal_is_that_of_the_folder_alone(tmp_path, monkeypatch):
    """A file in the working directory is none of a policy without a path, and a folder may have none."""
    save_file({"goal": torch.ones(WIDTH)}, tmp_path / GOAL_FILE)
    monkeypatch.chdir(tmp_path)
    assert not GoalScoringPolicy(config=dict(TINY)).goal.any()
    ScoringPolicy(config=dict(TINY)).save_pretrained(tmp_path / "plain")
    assert not GoalScoringPolicy(path=str(tmp_path / "plain")).goal.any()


def test_an_answer_that_begins_with_its_end_is_there(policy, monkeypatch):
    """The prompt is 5, 6 and the end 9: an empty answer, and one of 9, 7, begin at the place 2, one of 4 as well."""
    answers = {"": [], "end": [9, 7], "text": [4]}
    monkeypatch.setattr(policy, "_ids", lambda raw: [5, 6, *answers[raw["answer"]], 9])
    for answer in answers:
        assert int(policy.encode({"answer": answer})["start"]) == 2
    assert {"token_features", "token_places"} <= GoalScoringPolicy.predicts({})


def test_the_loss_of_a_batch_by_hand():
    """Group 5: states of the better answer are e, of the worse one -e: 2 log(1 + e^-1) = .626523 at both rows.

    States outside an answer are across, and would come in if they were drawn. A row without a preference takes no
    part, nor do groups with one side alone.
    """
    e, across = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    states = across.repeat(5, 4, 1)
    states[0, 1:3], states[1, 0] = e, -e
    states[2, :] = torch.tensor([1.0, -1.0])  # whose sum is 0
    places = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 3.0], [0.0, 3.0], [0.0, 3.0]])
    batch = Batch(group=torch.tensor([5, 5, 5, 6, 7]), preference=torch.tensor([1.0, -1.0, 0.0, 1.0, -1.0]))
    nothing = torch.zeros(5, 1)
    out = PolicyOutput(nothing, nothing, None, {"token_features": states.requires_grad_(), "token_places": places})
    loss = GoalContrastiveLoss(16)(out, batch)
    assert_close(loss.detach(), torch.tensor([0.626523, 0.626523, 0.0, 0.0, 0.0]), atol=1e-6, rtol=0)
    assert loss[2:].sum().requires_grad  # a batch without pairs has a gradient, of 0
