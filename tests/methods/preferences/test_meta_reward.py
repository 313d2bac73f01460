"""MetaRM: the separation by hand, and its step against two gradients of a classifier of transformers by itself."""

import copy

import pytest
import torch
from torch.nn.functional import logsigmoid

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Prompt, Sampling
from mmrl.learners.learner import Learner
from mmrl.methods.preferences.meta_reward import MetaLearner, PairsWithAnswers, separation
from mmrl.objectives.objective import Objective
from mmrl.objectives.preference import BradleyTerryLoss
from mmrl.policies.text.scorer import ScoringPolicy
from tasks.preferences.drifted import ANSWERS, DriftedPreferences
from tasks.preferences.planted import LETTERS, gold_reward

SIZE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = {"model_type": "qwen2", "num_key_value_heads": 2, "initializer_range": 0.3, **SIZE}
TASK = DriftedPreferences(count=50)


def test_the_separation_by_hand():
    # prompt 4: scores 1, 0 and -1, whose pairs are 1, 2 and 1 apart: (2 sigmoid(1) + sigmoid(2)) / 3 = (2 * .731059 +
    # .880797) / 3 = .780972; prompt 7: equal scores: .5; prompt 9 has one answer and does not count
    scores = torch.tensor([1.0, 0.3, 0.0, -1.0, 0.3, 5.0], requires_grad=True)
    group = torch.tensor([4, 7, 4, 4, 7, 9])
    value = separation(scores, group)
    assert value.item() == pytest.approx((0.780972 + 0.5) / 2, abs=1e-6)
    # d/dr of prompt 4, a half of the mean: sigmoid'(1) = .196612, sigmoid'(2) = .104994, (.196612 + .104994) / 6
    value.backward()
    assert scores.grad.tolist() == pytest.approx([0.050268, 0, 0, -0.050268, 0, 0], abs=1e-6)


def test_nothing_is_separated_without_two_answers():
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    assert separation(scores, torch.tensor([0, 1])).item() == 0
    assert separation(scores[:0], torch.tensor([], dtype=torch.long)).item() == 0


def collect(policy, count=5):
    """A batch of pairs with their unlabelled answers, one row an answer, in no order."""
    ctx = Context(TASK, None, policy, Sampling(), seed=0, iteration=0)
    episodes = PairsWithAnswers().collect([(slot, TASK[slot]) for slot in range(count)], ctx)
    done = [episode.turns[0].completion for episode in episodes]
    order = torch.randperm(len(done), generator=torch.Generator().manual_seed(3))
    batch = Batch(
        **{f"obs.{name}": each for name, each in policy.collate([c.observation for c in done]).items()},
        action=torch.zeros(len(done), 1, dtype=torch.long),
        action_mask=torch.ones(len(done), 1, dtype=torch.bool),
        preference=torch.stack([c.extra["preference"] for c in done]),
        group=torch.tensor([e.group for e in episodes]),
        loss_weights=torch.full((len(done), 1), 1 / len(done)),
    )
    return batch.select(order), episodes


def make_learner(meta_lr):
    torch.manual_seed(0)
    objective = Objective({"preference": BradleyTerryLoss()})
    return MetaLearner(meta_lr, policy=ScoringPolicy(config=CONFIG), objective=objective, optimizer=torch.optim.SGD)


def score(model, tokenizer, prompt, answer):
    text = prompt.messages[0]["content"] + answer
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return model(input_ids=torch.tensor([ids])).logits[0, 0]


def test_a_step_is_the_gradient_at_weights_moved_by_the_gradient_of_the_separation():
    """The oracle scores each text alone with the classifier, and differentiates loops over prompts."""
    learner = make_learner(0.5)
    batch, _ = collect(learner.policy)
    oracle, tokenizer = copy.deepcopy(learner.policy.model), learner.policy.tokenizer
    prompts = [TASK[index] for index in range(5)]
    # theta' = theta + eta grad J, with J the mean over prompts of the mean over pairs
    total = 0.0
    for prompt in prompts:
        scores = [score(oracle, tokenizer, prompt, text) for text in prompt.info["shifted"]]
        pairs = [(i, j) for i in range(len(scores)) for j in range(i)]
        total += sum(torch.sigmoid((scores[i] - scores[j]).abs()) for i, j in pairs) / len(pairs) / len(prompts)
    total.backward()
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter += 0.5 * parameter.grad
    oracle.zero_grad()
    losses = [
        -logsigmoid(score(oracle, tokenizer, p, p.info["chosen"]) - score(oracle, tokenizer, p, p.info["rejected"]))
        for p in prompts
    ]
    torch.stack(losses).mean().backward()
    # the learner's loss and gradient, and its weights, which are as before
    before = {name: weight.clone() for name, weight in learner.policy.named_parameters()}
    loss = learner.training_step(batch, 0)
    moved = max((weight - before[name]).abs().max() for name, weight in learner.policy.named_parameters())
    loss.backward()
    learner.on_after_backward()
    assert moved > 1e-3 and loss.item() == pytest.approx(torch.stack(losses).mean().item(), abs=1e-5)
    for (name, weight), other in zip(learner.policy.model.named_parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, other.grad, atol=2e-5, rtol=1e-4, msg=name)
    assert all(torch.equal(before[name], weight) for name, weight in learner.policy.named_parameters())


def test_a_step_of_no_size_is_bradley_terry():
    learner = make_learner(1e-12)
    batch, _ = collect(learner.policy)
    labelled = batch.select((batch["preference"] != 0).nonzero()[:, 0])
    plain = labelled.with_columns(loss_weights=torch.full((labelled.rows, 1), 1 / labelled.rows))
    expected, _ = learner.objective(learner.policy(plain), plain)
    assert learner.training_step(batch, 0).item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "scaled"),
    [
        ([1.0, -3.0, 2.0, -2.0], [2.0, -6.0]),  # 8 of all rows to 4 of the labelled ones
        ([0.0, 0.0, 2.0, -2.0], [0.0, 0.0]),
    ],
)
def test_labelled_rows_weigh_as_much_as_all_did(monkeypatch, weights, scaled):
    monkeypatch.setattr(MetaLearner, "_separate", lambda self, rows: None)
    monkeypatch.setattr(Learner, "training_step", lambda self, rows, index: rows)
    batch = Batch(preference=torch.tensor([1.0, -1.0, 0.0, 0.0]), loss_weights=torch.tensor(weights)[:, None])
    rows = make_learner(0.5).training_step(batch, 0)
    assert rows["loss_weights"].flatten().tolist() == scaled


def test_frozen_weights_stay_where_they_are():
    learner = make_learner(0.5)
    batch, _ = collect(learner.policy, count=2)
    frozen, *others = learner.policy.parameters()
    frozen.requires_grad_(False)
    before = frozen.clone()
    learner._separate(batch.select((batch["preference"] == 0).nonzero()[:, 0]))
    assert torch.equal(frozen, before) and len(learner._steps) == len(others)


def test_answers_without_a_label_stand_beside_their_pair():
    policy = ScoringPolicy(config=CONFIG)
    _, episodes = collect(policy, count=2)
    rows = [(e.group, e.output, e.turns[0].completion.extra["preference"].item()) for e in episodes]
    info = TASK[1].info
    second = [(1, info["chosen"], 1), (1, info["rejected"], -1), *((1, text, 0) for text in info["shifted"])]
    assert rows[2 + ANSWERS :] == second
    with pytest.raises(ValueError, match="'shifted' must list two or more answers"):
        PairsWithAnswers().label(Prompt("a/b/0", ({"role": "user", "content": "?"},), info={"shifted": ["a"]}))


def test_the_words_of_the_moved_policy_are_better():
    """The expected weight of a letter: sum_i p_i w_i with p_i proportional to exp(-+4 i / 7), w_i = 2 i / 7 - 1."""
    odds = [2.718281828 ** (4 * i / 7) for i in range(len(LETTERS))]
    expected = sum(o * (2 * i / 7 - 1) for i, o in enumerate(odds)) / sum(odds)
    task = DriftedPreferences(count=500, drift=4.0)
    pairs = [gold_reward(word) for i in range(400) for word in (task[i].info["chosen"], task[i].info["rejected"])]
    others = [gold_reward(word) for i in range(400) for word in task[i].info["shifted"]]
    # the mean of at least 4,800 letters, whose standard deviation is below .6: five standard errors are .043
    assert sum(others) / len(others) == pytest.approx(expected, abs=0.043)
    assert sum(pairs) / len(pairs) == pytest.approx(-expected, abs=0.05)  # equal rewards are drawn again
    held_out = task.on("held_out")
    assert [held_out[i].info["subset"] for i in range(4)] == ["labelled", "shifted"] * 2
    assert all("shifted" not in held_out[i].info for i in range(4))
    assert all(gold_reward(p["chosen"]) > gold_reward(p["rejected"]) for p in (held_out[i].info for i in range(40)))


def test_a_bad_drift_and_a_bad_step_are_refused():
    with pytest.raises(ValueError, match="drift"):
        DriftedPreferences(drift=-1)
    with pytest.raises(ValueError, match="meta_lr must be > 0"):
        make_learner(0.0)
