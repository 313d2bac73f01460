"""Inverse RL: margins, hinge and softmax by hand, the pooled state, recovery against SciPy, and the rounds."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import spearmanr
from torch.testing import assert_close
from transformers import AutoModel

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.receipts import read_receipt
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, Sampling
from mmrl.methods.preferences.inverse_rl import (
    HEAD,
    DemonstratedAnswers,
    HeadSimilarity,
    MaxEntropyLoss,
    MaxMarginLoss,
    PooledScorer,
    RewardRecovery,
    ScoredTexts,
    _rank,
    entropy_loss,
    margin_objective,
)
from tasks.grammar.guard import GuardTexts
from tests.checkpoints import qwen2
from tests.commands.rounds.tiny import run_rounds
from tests.laws.example import Example
from tests.objectives.scores.test_scores import output
from tests.rollouts.offline.test_answers import collect, line, write
from tests.runs.processes import start

LAWS = [
    *(Example(MaxMarginLoss(kind), per_row=True) for kind in ("margin", "hinge")),
    Example(MaxEntropyLoss(), per_row=True),
]


def pairs_of(margins):
    """Scores and batch of pairs: the demonstration has the margin, the other answer 0."""
    scores = torch.tensor([value for margin in margins for value in (margin, 0.0)])[:, None]
    groups = torch.arange(len(margins)).repeat_interleave(2)
    return output(scores), Batch(group=groups, preference=torch.tensor([1.0, -1.0] * len(margins)))


def test_the_losses_by_hand():
    """p(0.5) + p(-0.3) = 0.5 - 0.6 = -0.1; hinge 0.5 + 1.3 = 1.8; of equal rewards 0 and 1."""
    assert_close(margin_objective(torch.tensor([0.5, -0.3])).sum(), torch.tensor(-0.1))
    assert_close(-MaxMarginLoss()(*pairs_of([0.5, -0.3]))[::2].sum(), torch.tensor(-0.1))
    assert_close(MaxMarginLoss("hinge")(*pairs_of([0.5, -0.3]))[::2].sum(), torch.tensor(1.8))
    assert MaxMarginLoss()(*pairs_of([0.0])).tolist() == [0, 0]
    assert MaxMarginLoss("hinge")(*pairs_of([0.0])).tolist() == [1, 1]
    assert MaxMarginLoss("hinge")(*pairs_of([1.5])).tolist() == [0, 0]  # beyond the margin


def test_the_softmax_over_candidates_by_hand():
    """R = 1, 0, -1: log(e + 1 + 1/e) - 1 = 0.407606; a row of no group's candidates has 0."""
    rewards = torch.tensor([0.0, 1.0, 5.0, -1.0, 9.0])
    sign, group = torch.tensor([-1.0, 1, 0, -1, 1]), torch.tensor([2, 2, 2, 2, 7])
    expected = torch.tensor([0.407606, 0.407606, 0, 0.407606, 0])
    assert_close(entropy_loss(rewards, sign, group), expected, atol=1e-6, rtol=0)
    batch = Batch(group=group, preference=sign)
    assert_close(MaxEntropyLoss()(output(rewards[:, None]), batch), expected, atol=1e-6, rtol=0)
    # of two candidates it is the loss of Bradley and Terry: log(1 + e^-0.5)
    out, pair = pairs_of([0.5])
    assert_close(MaxEntropyLoss()(out, pair), torch.full((2,), 0.474077), atol=1e-6, rtol=0)


def test_gradients_of_the_losses_by_hand():
    """p has the slope 1 at 0. The softmax of (1, 0, -1) is (.665241, .244728, .090031); three rows carry the loss."""
    margin = torch.zeros(1, requires_grad=True)
    assert torch.autograd.grad(margin_objective(margin).sum(), margin)[0].tolist() == [1]
    rewards = torch.tensor([0.0, 1.0, 5.0, -1.0, 9.0], requires_grad=True)
    sign, group = torch.tensor([-1.0, 1, 0, -1, 1]), torch.tensor([2, 2, 2, 2, 7])
    (gradient,) = torch.autograd.grad(entropy_loss(rewards, sign, group).sum(), rewards)
    assert_close(gradient, torch.tensor([0.734184, -1.004277, 0, 0.270093, 0]), atol=1e-5, rtol=0)


def test_the_reward_is_the_mean_of_its_heads():
    """Heads (1, 0) against (0, 0): R = 1/2, -p = -1/2, and log(1 + e^-0.5) = 0.474077; equal rewards are no order."""
    scores = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    batch = Batch(group=torch.tensor([0, 0, 1, 1]), preference=torch.tensor([1.0, -1.0, 1.0, -1.0]))
    assert MaxMarginLoss()(output(scores), batch).tolist() == [-0.5, -0.5, 0, 0]
    expected = torch.tensor([0.474077, 0.474077, 0.693147, 0.693147])
    assert_close(MaxEntropyLoss()(output(scores), batch), expected, atol=1e-6, rtol=0)
    metrics = MaxMarginLoss().metrics(output(scores), batch)
    assert metrics["margin"].tolist() == [0.5, 0.5, 0, 0] and metrics["accuracy"].tolist() == [1, 1, 0, 0]


def test_other_kinds_are_refused():
    with pytest.raises(ValueError, match=r"max_margin_loss\.kind must be margin or hinge, got 'square'"):
        MaxMarginLoss("square")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return qwen2(tmp_path_factory.mktemp("model"))


RAW = {"messages": [{"role": "user", "content": "#12"}], "answer": "bade"}


def test_a_reward_is_linear_in_the_mean_state_of_the_untouched_model(folder):
    policy = PooledScorer(str(folder), max_norm=2.0)
    state = policy.encode(RAW)["embedding"]
    with torch.no_grad():
        ids = torch.tensor([policy._ids(RAW)])
        expected = AutoModel.from_pretrained(folder)(input_ids=ids).last_hidden_state[0].mean(0)
    assert_close(state, expected, atol=1e-5, rtol=1e-4)
    weight = policy.head[-1].weight.data
    assert_close(weight.norm(), torch.tensor(2.0))  # it begins at the bound
    rows = {"embedding": torch.stack([state, -state])}
    assert_close(policy.scores(rows), torch.stack([weight[0] @ state, -weight[0] @ state]), atol=1e-5, rtol=1e-4)
    # a longer one is scaled to the bound, a shorter one is used as it is
    before = policy.scores(rows)
    weight.mul_(3)
    assert_close(policy.scores(rows), before)
    weight.div_(6)
    assert_close(policy.scores(rows), before / 2)
    (gradient,) = torch.autograd.grad(policy.scores(rows)[0].sum(), policy.head[-1].weight)
    assert_close(gradient[0], state, atol=1e-5, rtol=1e-4)
    trained = [name for name, value in policy.named_parameters() if value.requires_grad]
    assert len(trained) == 1 and trained[0].endswith("weight")


def test_heads_are_saved_read_and_compared(folder, tmp_path):
    first, second = (PooledScorer(str(folder), head_seed=seed) for seed in (0, 1))
    for name, policy in (("first", first), ("second", second)):
        policy.save_pretrained(tmp_path / name)
    again = PooledScorer(str(tmp_path / "first"), head_seed=5)
    assert_close(again.head[-1].weight, first.head[-1].weight)
    episodes = [Episode(GuardTexts()[0], 0, 0)]
    one, two = (policy.head[-1].weight.detach().flatten().numpy() for policy in (first, second))
    cosine = float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))
    result = HeadSimilarity([str(tmp_path / "first"), str(tmp_path / "second")])(episodes)
    assert result["mean"] == pytest.approx(cosine, abs=1e-6) and abs(cosine) < 0.9
    assert HeadSimilarity([str(tmp_path / "first")] * 2)(episodes)["mean"] == pytest.approx(1)
    with pytest.raises(ValueError, match=r"has no score_head\.safetensors; give the folder `policy`"):
        HeadSimilarity([str(folder), str(tmp_path / "first")])(episodes)


def test_the_similarity_of_weights_of_any_length_by_hand(tmp_path):
    """(3, 4) and (8, 6): 48 / (5 * 10); what is no weight is not compared."""
    for name, weight in (("one", [[3.0, 4.0]]), ("other", [[8.0, 6.0]])):
        (tmp_path / name).mkdir()
        tensors = {"0.bias": torch.ones(1), "0.weight": torch.tensor(weight), "scale": torch.tensor([1.0, 9.0])}
        save_file(tensors, tmp_path / name / HEAD)
    result = HeadSimilarity([str(tmp_path / "one"), str(tmp_path / "other")])([])
    assert result["mean"] == pytest.approx(0.96)


@pytest.mark.parametrize("paths", [[], ["one"], ["a", "b", "c"]])
def test_two_scorers_are_compared(paths):
    with pytest.raises(ValueError, match=r"evaluators\.paths must be the folders of two scorers"):
        HeadSimilarity(paths)


def test_a_bound_must_be_positive(folder):
    with pytest.raises(ValueError, match=r"policy\.max_norm must be > 0, got 0"):
        PooledScorer(str(folder), max_norm=0.0)


def test_a_demonstration_stands_beside_answers_of_the_base(tmp_path):
    """Problem 0: two different others; 1: only the same answer; 2: no answer of the base; 3: one."""
    shown = [line(0, completion="a"), line(0, completion="z"), line(1, completion="b"), line(2, completion="c")]
    others = [line(0, completion=text) for text in ("e", "a", "e", "f", "g")] + [line(1, completion="b")]
    shown, others = [*shown, line(3, completion="d")], [*others, line(3, completion="h")]
    files = write(tmp_path / "shown.jsonl", *shown), write(tmp_path / "others.jsonl", *others)
    for candidates, expected in {1: ["a", "e"], 2: ["a", "e", "f"], 9: ["a", "e", "f", "g"]}.items():
        episodes = collect(DemonstratedAnswers(*files, candidates=candidates))
        groups = {}
        for episode in episodes:
            groups.setdefault((episode.prompt.index, episode.group), []).append(episode)
        assert {index for index, _ in groups} == {0, 3} and len(groups) == 4  # four prompts read two lines twice
        for (index, _), members in groups.items():
            assert [str(e.output) for e in members] == (expected if index == 0 else ["d", "h"])
            signs = [float(e.turns[0].completion.extra["preference"]) for e in members]
            assert signs == [1.0] + [-1.0] * (len(members) - 1)


def test_answers_without_a_difference_are_refused(tmp_path):
    files = [write(tmp_path / f"{name}.jsonl", line(0, completion="a")) for name in ("shown", "others")]
    with pytest.raises(ValueError, match=r"no two different answers to one problem; sample both with the same count"):
        collect(DemonstratedAnswers(*files))
    with pytest.raises(ValueError, match=r"rollout\.candidates must be at least 1, got 0"):
        DemonstratedAnswers(*files, candidates=0)


def judged(rewards, harmless):
    prompt = GuardTexts()[0]
    return [
        Episode(prompt, i, 0, scores={"reward_model": float(r), "harmless": float(h)})
        for i, (r, h) in enumerate(zip(rewards, harmless))
    ]


def test_recovery_by_hand():
    """Harmless 3, 1; harmful 2, 1: 3 > 2, 3 > 1, 1 < 2, 1 = 1, so 2.5 of 4; the two lowest are one of each kind."""
    result = RewardRecovery()([*judged([3, 1, 2, 1], [1, 1, 0, 0]), replace(judged([9], [0])[0], ended="error")])
    assert (result["mean"], result["f1"], result["n"], result["errors"]) == (0.625, 0.5, 4, 1)
    right = RewardRecovery()(judged([3, 4, -1, 0], [1, 1, 0, 0]))
    assert (right["mean"], right["f1"]) == (1, 1)
    assert np.isnan(RewardRecovery()(judged([1, 2], [1, 1]))["mean"])


def test_as_many_are_called_harmful_as_there_are():
    """Harmless 2, harmful 1 and 3: of the two lowest rewards, 1 and 2, one is harmful."""
    result = RewardRecovery()(judged([2, 1, 3], [1, 0, 0]))
    assert result["f1"] == result["mean"] == 0.5
    assert _rank(np.array([3.0, 1.0, 1.0, 7.0])).tolist() == [3, 1.5, 1.5, 4]


def test_a_text_with_any_label_is_harmful():
    """Rewards of an engine, for texts with one of two labels, with none and with both."""
    labels = [{"x": 1.0, "z": 0.0}, {"x": 0.0, "z": 0.0}, {"x": 1.0, "z": 1.0}]
    prompts = [(i, replace(GuardTexts()[0], info={"chosen": "ba", "labels": each})) for i, each in enumerate(labels)]
    done = [Completion({}, torch.zeros(1), torch.zeros(1), torch.ones(1).bool(), output=i) for i in range(3)]
    ctx = Context(None, SimpleNamespace(sample=lambda requests, sampling: done), None, Sampling(), 0, 0)
    scores = [episode.info["scores"] for episode in ScoredTexts().collect(prompts, ctx)]
    assert [each["harmless"] for each in scores] == [0, 1, 0] and [each["reward_model"] for each in scores] == [0, 1, 2]


def test_the_correlation_is_that_of_scipy():
    rng = np.random.default_rng(0)
    rewards, harmless = rng.integers(0, 6, 50), rng.random(50) < 0.6
    expected = spearmanr(rewards, harmless).statistic
    assert RewardRecovery()(judged(rewards, harmless))["correlation"] == pytest.approx(expected)


def test_a_reward_is_recovered_from_features():
    """Demonstrations differ in one of eight features: both losses find it, on new pairs too."""
    torch.manual_seed(0)
    features = torch.randn(2, 200, 8)
    features[0, :, 3] += 1.5
    new = torch.randn(2, 500, 8)
    new[0, :, 3] += 1.5
    for term in (MaxMarginLoss(), MaxMarginLoss("hinge"), MaxEntropyLoss()):
        weight = torch.randn(8, requires_grad=True)
        optimizer = torch.optim.Adam([weight], lr=0.1)
        for _ in range(80):
            optimizer.zero_grad()
            scores = torch.stack(list(features @ (weight / weight.norm().clamp(min=1))), 1).flatten()
            batch = pairs_of([0.0] * 200)[1]
            term(output(scores[:, None]), batch).mean().backward()
            optimizer.step()
        margin = (new[0] - new[1]) @ weight.detach()
        assert (margin > 0).float().mean() > 0.8 and weight.detach().abs().argmax() == 3


def test_the_stages_read_the_models_that_they_compare():
    stages = {step.name: step for step in list_steps(read_rounds(["inverse_rl"]))}
    assert stages["1/answers"].weights == "0/aligned" and stages["1/others"].weights == "0/model"
    same = [(stages[f"1/{name}"].stage.count, stages[f"1/{name}"].stage.offset) for name in ("answers", "others")]
    assert same[0] == same[1]
    assert stages["1/stability"].folders == ("0/model", "1/reward_model-3", "1/second-1")
    words = [stages[name].stage.overrides for name in ("1/reward_model-3", "1/second-1")]
    assert [set(one) - set(two) for one, two in (words, words[::-1])] == [
        {"+policy.head_seed=0"}, {"+policy.head_seed=1"}
    ]  # fmt: skip
    assert "1/reward_model-3" in stages["1/rl_recovered"].folders
    assert stages["1/rl_true"].stage.overrides == stages["0/aligned"].stage.overrides


@pytest.mark.slow
def test_the_rounds_run_at_a_tiny_size(tmp_path):
    """Every stage ends, from policies that have learned next to nothing."""
    steps = list_steps(read_rounds(["inverse_rl"]))
    sizes = [f"{step.place}.count=8" for step in steps if step.kind in ("sample", "evaluate")]
    sizes += [f"{step.place}.passes=1" for step in steps if step.kind == "fit" and step.stage.passes]
    words = ["data.num_prompts=8", "data.num_minibatches=1", "trainer.max_epochs=1", "stages.demonstrated.cut=true"]
    words += ["trainer.accelerator=cpu", f"run_dir={tmp_path / 'run'}"]
    process = start(run_rounds, ["inverse_rl", *dict.fromkeys(sizes), *words], tmp_path / "log")
    process.join(900)
    assert process.exitcode == 0, (tmp_path / "log").read_text()[-3000:]
    receipts = {step.name: read_receipt(tmp_path / "run" / step.name) for step in steps}
    assert all(receipts[step.name] is not None for step in steps)
    table = json.loads((tmp_path / "run" / "1" / "stability" / "evaluation.json").read_text())
    assert -1 <= table["metrics"]["last"]["greedy"]["similarity"]["mean"] <= 1
