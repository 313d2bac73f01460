"""The curve of a reward model that is the only reward: its points, win rate and summary by hand, and its rounds."""

import json
import runpy
from types import SimpleNamespace

import pytest

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from scripts.preferences.measure_overoptimisation import FILE, ROOT, main, read_curve, read_gold, summarize, win_rate
from tests.checkpoints import qwen2

METRICS = """iterations,rollout/tokens_mean,train/kl/mean,val/greedy/scores/gold,val/greedy/scores/reward_model
0.0,,,0.2,-0.5
1.0,10,0.01,,
2.0,20,0.05,,
2.0,,,0.4,0.5
"""


def test_a_point_has_the_divergence_of_the_answers_before_it(tmp_path):
    (tmp_path / "metrics.csv").write_text(METRICS)
    start, end = read_curve(tmp_path / "metrics.csv")
    assert start == {"iteration": 0, "kl": 0, "proxy": -0.5, "gold": 0.2}
    assert end == pytest.approx({"iteration": 2, "kl": 20 * 0.05, "proxy": 0.5, "gold": 0.4})


def test_a_run_without_the_proxy_is_refused_by_name(tmp_path):
    (tmp_path / "metrics.csv").write_text(METRICS.replace("reward_model", "other"))
    with pytest.raises(KeyError, match="scores/reward_model"):
        read_curve(tmp_path / "metrics.csv")


def test_the_win_rate_counts_equal_scores_half(tmp_path):
    lines = [
        json.dumps({"key": key, "scores": {"gold": gold, "words": 3.0}}) for key, gold in zip("abcd", (1, 0, 0.5, 1))
    ]
    (tmp_path / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    after, before = read_gold(tmp_path), {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.0}
    assert win_rate(after, before) == (1 + 0 + 0.5 + 1) / 4
    with pytest.raises(ValueError, match="1 problems"):
        win_rate(after, {key: before[key] for key in "abc"})


def test_the_summary_tells_the_end_from_the_best():
    # gold .2 -> .6 -> .3 on two seeds and .2 -> .5 -> .5 on the third: gains .1, .1, .3, lost .3, .3, 0
    curves = [
        [{"kl": float(i), "proxy": float(i), "gold": gold} for i, gold in enumerate(golds)]
        for golds in ((0.2, 0.6, 0.3), (0.2, 0.6, 0.3), (0.2, 0.5, 0.5))
    ]
    summary = summarize(curves, [0.5, 0.6, 0.7])
    assert summary["gold_gain"]["mean"] == pytest.approx(0.5 / 3)
    assert summary["gold_lost_since_best"]["mean"] == pytest.approx(0.2)
    assert summary["proxy_gain"]["interval"] == pytest.approx([2, 2]) and summary["kl_at_end"]["mean"] == 2
    assert summary["win_rate"]["mean"] == pytest.approx(0.6)


def test_the_gold_score_wants_both_things_in_one_sentence_of_its_length():
    task = runpy.run_path(str(ROOT / "examples" / "overoptimisation" / "sentences.py"))["Sentences"]()
    prompt = task[0]
    animal, place = prompt.info["things"]
    answers = {
        f"The old {animal} sleeps in the warm {place}.": 1.0,  # 8 words
        f"The old and wise {animal} of the north sleeps in the {place}.": 1.0,  # 12
        f"The {animal} sleeps in the warm {place}.": 0.5,  # 7
        f"The old and very wise {animal} of the north sleeps in the {place}.": 0.5,  # 13
        f"The old {animal} sleeps in the warm bed.": 0.5,
        f"The old {animal} sleeps in the {place}. It rains.": 0.5,
        f"The old {animal} sleeps in the warm {place}": 0.5,
        f"The {animal} sleeps in the {place}": 0.25,
        f"The old {animal}ish one sleeps in the bed.": 0.0,
        "": 0.0,
    }
    for answer, gold in answers.items():
        assert task.score(SimpleNamespace(output=answer, prompt=prompt))["gold"] == gold, answer
    contents = [
        {p.messages[0]["content"] for p in map(t.__getitem__, range(len(t)))} for t in (task, task.on("held_out"))
    ]
    assert not contents[0] & contents[1] and len(contents[0]) == len(task)


def test_the_policy_is_compared_on_the_problems_of_its_start():
    steps = {step.name: step for step in list_steps(read_rounds([str(ROOT / FILE)]))}
    assert next(iter(steps)) == "1/answers" and list(steps)[-1] == "1/measure"
    begin, measure = steps["1/begin"].stage, steps["1/measure"].stage
    assert (begin.count, begin.overrides) == (measure.count, measure.overrides) and measure.weights == "policy"


@pytest.mark.slow  # three seeds of seven processes
def test_the_whole_chain_runs_on_a_small_checkpoint(tmp_path, monkeypatch):
    words = [f"policy.path={qwen2(tmp_path / 'model')}", "data.num_prompts=2", "data.num_minibatches=1"]
    words += ["stages.answers.count=6", "stages.begin.count=4", "stages.measure.count=4", "data.update_epochs=1"]
    words += ["trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "data.evaluation.count=4"]
    folders = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["measure_overoptimisation.py", *folders, "--seeds", "0", "1", "2", *words])
    main()
    result = json.loads((tmp_path / "out" / "smollm2.json").read_text())
    assert len(result["curves"]) == 3 and all(len(curve) == 2 for curve in result["curves"].values())
    assert (tmp_path / "out" / "smollm2.png").stat().st_size > 5000
