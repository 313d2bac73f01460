"""Terms of reward models beside Bradley-Terry: against the formulas of TRL and of transformers, and by hand."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForSequenceClassification

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.scores.centered import CenteredScores
from mmrl.objectives.scores.contrastive import ContrastiveLoss, info_nce
from mmrl.objectives.scores.labels import LabelLoss
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from tests.laws.example import Example
from tests.policies.text.test_scorer import TINY

LAWS = [
    Example(CenteredScores(), per_row=True),
    *(Example(ContrastiveLoss(over=over)) for over in ("answer", "difference")),
    *(Example(LabelLoss(kind), per_row=True) for kind in ("regression", "multi_label")),
]


def output(scores, **extra):
    scores = torch.as_tensor(scores)
    nothing = torch.zeros(len(scores), 1)
    extra = extra | ({"scores": scores} if scores.shape[1] > 1 else {})
    return PolicyOutput(nothing, nothing, scores.mean(1), extra)


PAIRS = Batch(group=torch.tensor([3, 8, 3, 8, 9]), preference=torch.tensor([1.0, -1, -1, 1, 0]))


def test_centering_is_that_of_reward_trainer():
    """TRL adds coefficient * mean((chosen + rejected)^2)."""
    scores = torch.tensor([[2.0], [-1.0], [0.5], [3.0], [7.0]])
    expected = torch.stack([scores[0] + scores[2], scores[3] + scores[1]]).square().mean()
    values = CenteredScores()(output(scores), PAIRS)
    assert_close(values[:4].mean(), expected)  # both rows of a pair carry its loss
    assert values[4] == 0


@pytest.mark.parametrize("kind, problem", [("regression", "regression"), ("multi_label", "multi_label_classification")])
def test_losses_of_labels_are_those_of_transformers(kind, problem):
    tokenizer = character_tokenizer()
    sizes = {name: value for name, value in TINY.items() if name != "model_type"}
    config = AutoConfig.for_model("qwen2", **sizes, **special_ids(tokenizer), num_labels=3, problem_type=problem)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    ids, labels = torch.randint(5, 20, (4, 6)), torch.rand(4, 3).round()
    theirs = model(input_ids=ids, labels=labels)
    assert_close(LabelLoss(kind)(output(theirs.logits), Batch(labels=labels)).mean(), theirs.loss)


def test_classes_by_number_or_by_column():
    scores, classes = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]), torch.tensor([1, 2])
    expected = torch.nn.functional.cross_entropy(scores, classes, reduction="none")
    for labels in (classes[:, None].float(), torch.eye(3)[classes]):
        assert_close(LabelLoss("classification")(output(scores), Batch(labels=labels)), expected)
    with pytest.raises(ValueError, match="classes must be numbers from 0 to 2"):
        LabelLoss("classification")(output(scores), Batch(labels=torch.tensor([[3.0], [0.0]])))
    with pytest.raises(ValueError, match=r"2 labels and the policy has 3 heads; set policy\.heads=2"):
        LabelLoss()(output(scores), Batch(labels=torch.zeros(2, 2)))


def test_unknown_labels_count_nowhere():
    scores = torch.tensor([[1.0, 5.0], [2.0, 2.0]], requires_grad=True)
    labels = torch.tensor([[3.0, torch.nan], [torch.nan, torch.nan]])
    loss = LabelLoss()(output(scores), Batch(labels=labels))
    assert loss.tolist() == [4.0, 0.0]
    loss.sum().backward()
    assert scores.grad.tolist() == [[-4.0, 0.0], [0.0, 0.0]]


def test_info_nce_by_hand():
    # cosines 1 and 0.6 over temperature 0.5: log(1 + e^((0.6 - 1) / 0.5)) = log(1 + e^-0.8) = 0.371101
    rows = torch.tensor([[2.0, 0.0], [0.6, 0.8]])
    assert_close(info_nce(rows, rows, 0.5), torch.full((2,), 0.371101), atol=1e-6, rtol=0)


def test_the_contrast_separates_pairs_and_is_drawn_alike():
    """Features of two pairs that are almost equal become different directions; a second call draws the same masks."""
    torch.manual_seed(0)
    features = (
        torch.ones(5, 8) * torch.tensor([1.0, -1, -1, 1, 0])[:, None] + 0.01 * torch.randn(5, 8)
    ).requires_grad_()
    term = ContrastiveLoss(temperature=0.5)

    def loss():
        return term(output(torch.zeros(5, 1), features=features), PAIRS)

    first = loss()
    assert_close(first, loss())
    assert_close(first[[0, 1]], first[[2, 3]])  # both rows of a pair carry its loss
    assert first[4] == 0
    optimizer = torch.optim.SGD([features], lr=1.0)
    for _ in range(50):
        optimizer.zero_grad()
        loss().sum().backward()
        optimizer.step()
    assert loss().sum() < 0.5 * first.sum()
