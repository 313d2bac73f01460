import json
import shutil

import pytest
import torch

from mmrl.__main__ import main

FIT = ["fit", "recipe=sft", "task=arithmetic", "policy=tiny_text", "trainer.max_epochs=1", "data.num_prompts=16",
       "data.num_minibatches=1", "data.evaluation.count=8", "trainer.enable_progress_bar=false",
       "trainer.callbacks.progress=null"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    assert main([*FIT, f"run_dir={folder}"]) == 0
    return folder


def test_a_run_is_measured_on_held_out_problems(run, capsys):
    assert main(["evaluate", str(run), "count=12"]) == 0
    assert "greedy" in capsys.readouterr().out
    written = json.loads((run / "evaluation.json").read_text())
    assert written["split"] == "held_out" and written["count"] == 12 and written["task"] == "arithmetic"
    assert written["metrics"]["last"]["greedy"]["exact"]["n"] == 12
    assert written["checkpoints"]["last"]["optimiser_steps"] == 1
    assert {"python", "torch"} <= set(written["versions"])


def test_the_measurement_in_training_and_the_command_agree(run):
    assert main(["evaluate", str(run)]) == 0
    exact = json.loads((run / "evaluation.json").read_text())["metrics"]["last"]["greedy"]["exact"]
    assert exact["n"] == 8 and 0 <= exact["lower"] <= exact["mean"] <= exact["upper"] <= 1


def test_two_checkpoints_are_compared_on_the_same_problems(run, capsys):
    assert main(["evaluate", str(run), "compare=start", "count=10", "decode=greedy,sample"]) == 0
    assert "McNemar p" in capsys.readouterr().out
    rows = json.loads((run / "evaluation.json").read_text())["comparison"]["exact"]
    assert [row["decode"] for row in rows] == ["greedy", "sample"]
    for row in rows:
        assert row["pairs"] == 10
        assert row["won"] - row["lost"] == row["after"]["successes"] - row["before"]["successes"]


def test_several_samples_of_two_checkpoints_give_their_pass_at_k_curves(run, capsys):
    words = ["compare=start", "count=6", "num_samples=5", "model.reference=true"]
    assert main(["evaluate", str(run), *words]) == 0
    printed = capsys.readouterr().out
    assert "pass@k after is" in printed and "sampling-efficiency gap, pass@5 before - pass@1 after" in printed
    assert "perplexity_policy_by_start" in printed or "both 0, lost 0, gained 0" in printed
    written = json.loads((run / "evaluation.json").read_text())
    (part,) = written["boundary"]["exact"]
    assert part["label"] == "sample" and written["comparison"] == {}
    for title in ("before", "after"):
        curve, passes = part["pass"][title], written["metrics"][title]["sample"]["exact_pass"]
        assert [curve[k - 1] for k in (1, 2, 4, 5)] == pytest.approx([passes[f"pass@{k}"] for k in (1, 2, 4, 5)])
        assert sum(part["accuracies"][title]) == 6
    assert part["efficiency_gap"] == pytest.approx(part["pass"]["before"][4] - part["pass"]["after"][0])
    assert (run / "plots" / "sample-exact-boundary.png").stat().st_size > 10_000


def test_a_measurement_with_several_samples_is_compared_with_later(run, tmp_path, capsys):
    other = tmp_path / "other"
    assert main(["evaluate", str(run), "checkpoint=start", "count=4", "num_samples=3"]) == 0
    alone = json.loads((run / "evaluation.json").read_text())["metrics"]["start"]["sample"]["exact_pass"]
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("policy", "checkpoints"))
    assert main(["evaluate", str(run), f"compare={other}", "count=4", "num_samples=2"]) == 2
    assert "num_samples: 3 there, 2 here" in capsys.readouterr().err
    words = ["count=4", "num_samples=3", "model.reference=true"]
    assert main(["evaluate", str(run), f"compare={other}", *words]) == 0
    (part,) = json.loads((run / "evaluation.json").read_text())["boundary"]["exact"]
    assert part["pass"]["before"] == pytest.approx([alone[f"pass@{k}"] for k in (1, 2, 3)])
    assert not any(name.startswith("perplexity") for name in part)  # the other policy is not here


def test_several_samples_give_pass_at_k_under_a_decode_that_draws(run):
    assert main(["evaluate", str(run), "count=4", "num_samples=3"]) == 0
    metrics = json.loads((run / "evaluation.json").read_text())["metrics"]["last"]
    assert list(metrics) == ["sample"]
    assert {"pass@1", "pass@2", "pass@3"} <= set(metrics["sample"]["exact_pass"])


def test_a_checkpoint_finds_its_run(run):
    assert main(["evaluate", str(run / "checkpoints" / "start.ckpt"), "count=2"]) == 0
    written = json.loads((run / "evaluation.json").read_text())
    assert written["checkpoints"]["start"]["optimiser_steps"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cuont=3"], "Did you mean 'count'?"),
        (["sim=reach"], "measured with its own sim; change values of it by sim.KEY=VALUE, or serve the run"),
        (["checkpoint=best"], "there are ['last', 'start']"),
        (["count=0"], "count=0: must be a whole number"),
        (["decode=nonsense"], "give sample, argmax, mean or a configured one of ['greedy']"),
        (["video=true"], "has no simulator to record a video of"),
        (["engine.max_row=3"], "Did you mean 'max_rows'?"),
    ],
)
def test_what_cannot_be_measured_is_refused(run, words, message, capsys):
    assert main(["evaluate", str(run), *words]) == 2
    assert message in capsys.readouterr().err


def test_unreadable_and_unfitting_checkpoints_are_refused(run, tmp_path, capsys):
    broken = run / "checkpoints" / "broken.ckpt"
    broken.write_bytes(b"nothing")
    other = run / "checkpoints" / "other.ckpt"
    torch.save({"state_dict": {"policy.nonsense": torch.zeros(1)}}, other)
    try:
        assert main(["evaluate", str(broken)]) == 2
        assert "not a readable checkpoint" in capsys.readouterr().err
        assert main(["evaluate", str(other)]) == 2
        assert "do not fit the policy" in capsys.readouterr().err
    finally:
        broken.unlink(), other.unlink()
    assert main(["evaluate", str(tmp_path / "nothing")]) == 2
    assert "neither the folder of a run" in capsys.readouterr().err


def test_another_simulator_than_in_training_is_refused(run, capsys):
    before = (run / "contract.json").read_text()
    assert json.loads(before) == {}  # arithmetic has no simulator
    (run / "contract.json").write_text('{"renderer": "egl"}')
    try:
        assert main(["evaluate", str(run)]) == 2
        assert 'renderer: "egl" in training, not stated here' in capsys.readouterr().err
    finally:
        (run / "contract.json").write_text(before)


def test_what_is_accepted_is_said_and_measured(run, capsys):
    before = (run / "contract.json").read_text()
    (run / "contract.json").write_text('{"renderer": "egl"}')
    try:
        assert main(["evaluate", str(run), "count=2", "accept=renderer"]) == 0
        assert "Accepted" in capsys.readouterr().err
    finally:
        (run / "contract.json").write_text(before)


def test_other_versions_than_in_training_are_said_and_measured(run, capsys):
    path = run / "environment.json"
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | {"torch": "0.1"}))
    try:
        assert main(["evaluate", str(run), "count=2"]) == 0
        assert 'torch: "0.1" in training, "' in capsys.readouterr().err
    finally:
        path.write_text(before)


def test_an_earlier_measurement_is_compared_only_under_its_own_protocol(run, tmp_path, capsys):
    other = tmp_path / "other"
    assert main(["evaluate", str(run), "checkpoint=start", "count=10"]) == 0
    printed = capsys.readouterr().out
    protocol = json.loads((run / "protocol.json").read_text())
    assert f"protocol {protocol['hash']}" in printed
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("policy", "checkpoints"))
    assert main(["evaluate", str(run), f"compare={other}", "count=12"]) == 2
    message = capsys.readouterr().err
    assert "problems.count: 10 there, 12 here" in message and "2 entries of the protocol differ" in message
    assert json.loads((run / "evaluation.json").read_text())["protocol"] == protocol["hash"]  # nothing was written
    assert main(["evaluate", str(run), f"compare={other}", "count=10"]) == 0
    assert "McNemar p" in capsys.readouterr().out
    written = json.loads((run / "evaluation.json").read_text())
    assert written["against"] == str(other) and written["protocol"] == protocol["hash"]
    (row,) = written["comparison"]["exact"]
    both = [json.loads((folder / "evaluation.json").read_text())["metrics"] for folder in (other, run)]
    means = [both[0]["start"]["greedy"]["exact"]["mean"], both[1]["before"]["greedy"]["exact"]["mean"]]
    assert means == [row["before"]["rate"]] * 2
    assert (run / "report.html").read_text().count(protocol["hash"]) >= 2


def test_only_a_measured_run_can_be_compared_with(run, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("{}")
    assert main(["evaluate", str(run), f"compare={tmp_path}"]) == 2
    assert f"run mmrl evaluate {tmp_path}" in capsys.readouterr().err
