"""`mmrl evaluate task=... policy.path=...` measures any checkpoint, under the protocol of a run's evaluation."""

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mmrl.__main__ import main
from mmrl.commands.evaluate import evaluate
from mmrl.commands.evaluation.folder import names_no_run
from sims.tabletop import Reach
from tests.test_recipes import words_of


class Small(Reach):
    """Reach, whose frames have at most 32 pixels a side."""

    def make(self, num_envs):
        env = super().make(num_envs)
        render = env.render

        def render_small(i, size):
            if size > 32:
                raise RuntimeError(f"no display of {size} pixels")
            return render(i, size)

        env.render = render_small
        return env


def test_a_policy_folder_gives_the_numbers_of_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *words_of("grpo", "run"), "data.max_empty_iterations=100"]) == 0
    of_run = evaluate(["run", "count=6"])
    tokens = of_run["decodes"]["greedy"]["max_tokens"]
    words = ["task=arithmetic", "policy.path=run/policy", f"sampling.max_tokens={tokens}"]
    alone = evaluate([*words, "count=6", "run_dir=alone"])
    assert alone["protocol"] == of_run["protocol"]
    assert alone["metrics"]["policy"] == of_run["metrics"]["last"]
    assert alone["checkpoints"]["policy"]["path"] == str(tmp_path / "run" / "policy")
    rows = [json.loads(line) for line in (tmp_path / "alone" / "episodes.jsonl").read_text().splitlines()]
    before = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    assert [row["sample"]["output"] for row in rows] == [row["sample"]["output"] for row in before]
    assert all(row["sample"]["messages"] and row["sample"]["answer"] is not None for row in rows)
    assert (tmp_path / "alone" / "report.html").stat().st_size < 3_000_000
    assert main(["evaluate", "alone", "count=3"]) == 0  # the folder can be evaluated again


def test_a_recipe_says_what_a_path_is_read_by(tmp_path, monkeypatch):
    """A reward model's folder is no text policy; its accuracy on other pairs is that of its run."""
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *words_of("reward_model", "run")]) == 0
    rows = [{"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": str(i)} for i in range(6)]
    Path("bench.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_run = evaluate(["run", "task.held_out_path=bench.jsonl", "count=6"])
    words = ["recipe=reward_model", "task.held_out_path=bench.jsonl", "policy.path=run/policy"]
    alone = evaluate([*words, "run_dir=alone"])
    (decode,) = alone["metrics"]["policy"]
    assert alone["metrics"]["policy"][decode]["right"]["n"] == 6
    assert alone["metrics"]["policy"] == of_run["metrics"]["last"]


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["task=arithmetic", "policy.path=x"], True),
        (["policy=tiny_text", "count=3"], True),
        (["runs/mine", "count=3"], False),
        (["count=3"], False),
        (["policy.path=x"], False),
    ],
)
def test_only_groups_without_a_folder_need_no_run(arguments, expected):
    assert names_no_run(arguments) == expected


@pytest.mark.parametrize("option, rate", [("oracle", 1.0), ("random", 1 / 64)])
def test_the_task_answers_in_place_of_a_policy(option, rate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = evaluate(["task=jigsaw", f"policy={option}", "count=64", "run_dir=here"])
    assert result["metrics"]["policy"]["greedy"]["exact"]["mean"] == rate  # 1 of 24 orders is right
    rows = [json.loads(line) for line in (tmp_path / "here" / "episodes.jsonl").read_text().splitlines()]
    assert len({row["sample"]["output"] for row in rows}) > 10


def test_videos_of_several_samples_are_recorded_and_sent_once(tmp_path, monkeypatch):
    """The recording plays one sample of each state, too few for pass@2; a later evaluation sends no earlier video."""
    monkeypatch.chdir(tmp_path)
    words = ["sim=reach", "policy=random", "num_samples=2", "run_dir=here", "logger=tensorboard", "send=true"]
    result = evaluate([*words, "count=2", "video=true", "video_episodes=1"])
    assert "pass@2" in result["metrics"]["policy"]["sampled"]["success_pass"]
    assert (tmp_path / "here" / "videos" / "sampled.mp4").is_file() and (tmp_path / "here" / "report.html").is_file()
    evaluate(["here", "count=2", "num_samples=1", "send=true"])
    events = EventAccumulator(str(tmp_path / "here" / "tensorboard"))
    events.Reload()
    assert len(events.Images("sampled")) == 1


def test_numbers_are_written_before_videos_are_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sim = ["sim=reach", f"sim._target_={__name__}.Small"]
    with pytest.raises(RuntimeError, match="no display of 192 pixels"):
        evaluate([*sim, "policy=random", "count=2", "run_dir=here", "video=true"])
    assert json.loads((tmp_path / "here" / "evaluation.json").read_text())["count"] == 2


def test_a_run_with_pass_at_32_is_measured_with_other_numbers_of_samples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    own = ["task=jigsaw", "policy=random", "evaluation=pass_at_k", "run_dir=here"]
    few = evaluate([*own, "count=2", "num_samples=3"])["metrics"]["policy"]["sampled"]
    assert {name for name in few["pass"] if "_" not in name} == {"pass@1", "pass@2", "prompts", "errors"}
    assert "pass@3" in few["exact_pass"]
    one = evaluate(["here", "count=2", "num_samples=1"])["metrics"]["policy"]["sampled"]
    assert "pass@1" in one["pass"] and "pass@2" not in one["pass"]
    capsys.readouterr()
    assert main(["evaluate", "here", "compare=here", "num_samples=1", "count=2"]) == 0
