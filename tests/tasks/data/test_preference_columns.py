"""Columns of preference files beside the answers: margins, soft labels, labels, steps, candidates, subsets."""

import json

import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rollouts.offline.pairs import PreferencePairs, ScoredPairs
from mmrl.rollouts.offline.rated import RatedAnswers, ScoredCandidates, ScoredLabels
from tasks.preferences.task import Preferences
from tests.policies.text.test_scorer import TINY


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows(count, **columns):
    return [{"prompt": f"{n}+1=", "chosen": str(n + 1), "rejected": "no", **columns} for n in range(count)]


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return ScoringPolicy(config=TINY, heads=["good", "short"])


def context(task, policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return Context(task, engine, policy, Sampling(), seed=0, iteration=0)


def collect(rollout, task, policy):
    return rollout.collect([(i, task[i]) for i in range(len(task))], context(task, policy))


def test_numbers_of_pairs_reach_their_rows(tmp_path, policy):
    task = Preferences(write(tmp_path / "a.jsonl", *rows(5, margin=1.5, probability=0.75, subset="mine", id=7)))
    assert task[0].info["subset"] == "mine" and task[0].info["id"] == "7"
    batch = collate(collect(PreferencePairs(), task, policy), policy)
    assert set(batch["preference_margin"].tolist()) == {1.5}
    assert set(batch["preference_probability"].tolist()) == {0.75}
    plain = Preferences(write(tmp_path / "b.jsonl", *rows(5)))
    assert collate(collect(PreferencePairs(), plain, policy), policy)["preference_margin"].isnan().all()


@pytest.mark.parametrize(
    "odd, message",
    [
        ({"margin": "large"}, "column 'margin' has 'large', which is no finite number"),
        ({"probability": 1.5}, r"'probability' is 1.5, it must be the probability in \[0, 1\]"),
        ({"margin": None}, r":1: the row has no column 'margin', and .*:2 has one; give it to all rows"),
    ],
)
def test_odd_numbers_are_refused_by_row(tmp_path, odd, message):
    path = write(tmp_path / "a.jsonl", {**rows(1)[0], **odd}, *rows(4, margin=1.0)[1:])
    with pytest.raises(ValueError, match=message):
        len(Preferences(path))


def test_a_file_of_held_out_pairs(tmp_path):
    train, other = write(tmp_path / "a.jsonl", *rows(6)), write(tmp_path / "b.jsonl", *rows(3, subset="hep-go", id=1))
    task = Preferences(train, held_out_path=other)
    assert len(task) == 6 and len(task.on("held_out")) == 3 and task.on("held_out")[0].info["subset"] == "hep-go"
    with pytest.raises(FileNotFoundError, match=r"set task\.held_out_path"):
        len(Preferences(train, held_out_path="nothing.jsonl", split="held_out"))


def test_planted_noise_exchanges_training_answers_alone(tmp_path):
    path = write(tmp_path / "a.jsonl", *rows(50))
    clean, noisy = Preferences(path), Preferences(path, flipped_fraction=0.25)
    flips = [noisy[i].info["chosen"] != clean[i].info["chosen"] for i in range(len(clean))]
    assert sum(flips) == 10 and len(flips) == 40
    held_out = noisy.on("held_out")
    assert all(held_out[i].info["rejected"] == "no" for i in range(len(held_out)))


def test_labels_of_answers(tmp_path, policy):
    answers = [{"prompt": f"{n}", "completion": "x", "labels": {"good": n, "short": None}} for n in range(5)]
    task = Preferences(write(tmp_path / "a.jsonl", *answers))
    batch = collate(collect(RatedAnswers(), task, policy), policy)
    assert batch["labels"].shape == (4, 2) and batch["labels"][:, 1].isnan().all()
    assert collate(collect(RatedAnswers(["good"]), task, policy), policy)["labels"].shape == (4, 1)
    scored = collect(ScoredLabels(), task, policy)
    heads = policy.head_scores(policy.collate([policy.encode({**task[0].observation, "answer": "x"})]))[0]
    expected = abs(float(heads[0]) - task[0].info["labels"]["good"])
    assert scored[0].info["scores"] == {"error_good": pytest.approx(expected, abs=1e-5)}
    with pytest.raises(ValueError, match=r"there is no label \['bad'\]"):
        RatedAnswers(["bad"]).check_task(task)
    with pytest.raises(ValueError, match="no column 'labels'"):
        RatedAnswers().check_task(Preferences())


def test_candidates_are_scored_and_their_extremes_are_a_pair(tmp_path, policy):
    several = [{"prompt": f"{n}", "completions": ["p", "q", "r"], "scores": [1, 3, 2]} for n in range(5)]
    task = Preferences(write(tmp_path / "a.jsonl", *several))
    assert (task[0].info["chosen"], task[0].info["rejected"]) == ("q", "p")
    episodes = collect(ScoredCandidates(), task, policy)
    assert len(episodes) == 12 and [e.info["scores"]["gold"] for e in episodes[:3]] == [1, 3, 2]
    score = policy.scores(policy.collate([policy.encode({**task[0].observation, "answer": "q"})]))
    assert episodes[1].info["scores"]["reward_model"] == pytest.approx(float(score), abs=1e-5)


def test_several_heads_have_a_spread(tmp_path, policy):
    task = Preferences(write(tmp_path / "a.jsonl", *rows(5)))
    (episode, *_) = collect(ScoredPairs(), task, policy)
    raws = [{**task[0].observation, "answer": task[0].info[name]} for name in ("chosen", "rejected")]
    heads = policy.head_scores(policy.collate([policy.encode(raw) for raw in raws])).detach()
    margins = heads[0] - heads[1]
    assert episode.info["scores"]["margin"] == pytest.approx(float(margins.mean()), abs=1e-5)
    assert episode.info["scores"]["spread"] == pytest.approx(float(margins.std(correction=0)), abs=1e-5)
