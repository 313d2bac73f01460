"""ROCKET-3: gradients of the labels' likelihoods by hand, and of the encoder of goal views by differences."""

from math import log

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.goals.rocket3.policy import CrossViewEncoder, CrossViewPolicy
from mmrl.methods.goals.rocket3.pretraining import TargetCentroid, TargetVisibility
from tests.methods.goals.rocket3.test_policy import build_policy


def output(**extra) -> PolicyOutput:
    return PolicyOutput(torch.zeros(1, 1), torch.zeros(1, 1), extra=extra)


def test_the_gradient_of_visibility_by_hand():
    """sigmoid(ln 3) - 1 = -1/4 in view, and 3/4 out of it. A logit of 0 says that nothing is in view."""
    logits = torch.tensor([log(3), log(3)], requires_grad=True)
    TargetVisibility()(
        output(visible_logits=logits), Batch(target_visible=torch.tensor([True, False]))
    ).sum().backward()
    assert logits.grad.tolist() == pytest.approx([-0.25, 0.75])
    out, batch = output(visible_logits=torch.zeros(2)), Batch(target_visible=torch.tensor([True, False]))
    assert TargetVisibility().metrics(out, batch)["accuracy"].tolist() == [0, 1]


def test_the_gradient_of_the_centroid_by_hand():
    """Softmax (1, 3, 1, 1) / 6 less the cell 1; nothing where the target is not in view."""
    logits = torch.tensor([[0.0, log(3), 0, 0]] * 2, requires_grad=True)
    batch = Batch(target_visible=torch.tensor([True, False]), target_centroid=torch.tensor([[0.6, 0.2], [0.6, 0.2]]))
    TargetCentroid()(output(cell_logits=logits), batch).sum().backward()
    assert logits.grad[0].tolist() == pytest.approx([1 / 6, -1 / 2, 1 / 6, 1 / 6]) and not logits.grad[1].any()


@pytest.mark.parametrize("name", ["convs.0.weight", "key.weight", "query.weight"])
def test_the_encoder_has_the_gradient_of_differences(name):
    torch.manual_seed(0)
    encoder = CrossViewEncoder((8, 8, 7), 3, width=2).double()
    image = torch.randint(256, (1, 8, 8, 7), dtype=torch.uint8)
    image[..., 6] = 0
    image[:, 2:4, 2:6, 6] = 255
    weights = dict(encoder.named_parameters())[name].detach().clone().requires_grad_()

    def encode(values):
        return torch.func.functional_call(encoder, {name: values}, (image,))

    assert torch.autograd.gradcheck(encode, weights)


def test_the_way_through_the_mean_of_the_goal_view_alone_has_a_gradient():
    """With an output that reads the target alone, the convolutions have the gradient of differences."""
    torch.manual_seed(0)
    encoder = CrossViewEncoder((8, 8, 7), 3, width=2).double()
    encoder.head = torch.nn.Identity()
    image = torch.randint(256, (1, 8, 8, 7), dtype=torch.uint8)
    weights = encoder.convs[0].weight.detach().clone().requires_grad_()

    def encode(values):
        return torch.func.functional_call(encoder, {"convs.0.weight": values}, (image,))[:, -2:]

    assert torch.autograd.gradcheck(encode, weights)


def test_a_goal_view_without_a_mask_has_no_target():
    encoder = CrossViewEncoder((8, 8, 7), 3, width=2)
    encoder.head = torch.nn.Identity()
    image = torch.randint(256, (1, 8, 8, 7), dtype=torch.uint8)
    image[..., 6] = 0
    assert encoder(image)[:, -2:].tolist() == [[0, 0]]


def test_the_memory_learns_from_labels_and_actions():
    policy = build_policy()
    policy.whole_sequences = True
    observation = {name: torch.zeros(2, *shape) for name, shape in (("memory", (6,)),)}
    size = policy.encoder.image_shape
    observation["image"] = torch.randint(256, (2, *size), dtype=torch.uint8)
    if policy.config["observation_dims"]:
        observation["state"] = torch.rand(2, policy.config["observation_dims"])
    batch = Batch(
        {f"obs.{name}": column for name, column in observation.items()},
        action=torch.zeros(2, 1, dtype=torch.long), temperature=torch.ones(2),
        episode=torch.zeros(2, dtype=torch.long), step=torch.arange(2),
    )  # fmt: skip
    out = policy(batch)
    assert CrossViewPolicy.predicts({}) == {"values", "visible_logits", "cell_logits"}
    (slope,) = torch.autograd.grad(out.extra["visible_logits"].sum(), policy.encoder.image_encoder.key.weight)
    assert slope.abs().sum() > 0
