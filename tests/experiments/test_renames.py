"""A renaming is told from a changed value, shape or class."""

import copy

import pytest

from mmrl.experiments.renames import ConfigComparison, Form

OLD = {
    "trainer": {"max_epochs": 120, "gradient_clip_val": 1.0},
    "data": {
        "prompts": 32,
        "stages": {"probe": {"_target_": "mmrl.stages.probe.Probe", "column": "score"}},
        "pipeline": ["reference", "probe"],
        "total": "${product:${trainer.max_epochs},${data.prompts}}",
    },
    "model": {"clip": {"_target_": "mmrl.objectives.policy.Clip", "low": 0.2, "high": 0.28, "level": "token"}},
}
NEW = {
    "trainer": {"max_epochs": 120, "gradient_clip_val": 1.0},
    "data": {
        "num_prompts": 32,
        "annotators": {"self_reward": {"_target_": "mmrl.annotators.self_reward.SelfReward", "column": "score"}},
        "pipeline": ["reference", "self_reward"],
        "total": "${product:${trainer.max_epochs},${data.num_prompts}}",
    },
    "model": {"clip": {"_target_": "mmrl.losses.Clip", "clip_low": 0.2, "clip_high": 0.28, "level": "token"}},
}


def change(path: str, value) -> dict:
    """NEW with one changed entry; None takes it out."""
    result = copy.deepcopy(NEW)
    *above, key = path.split(".")
    node = result
    for name in above:
        node = node[name]
    if value is None:
        del node[key]
    else:
        node[key] = value
    return result


def test_names_alone_make_no_difference():
    assert ConfigComparison().find_difference(OLD, NEW) is None
    assert ConfigComparison().find_difference(OLD, OLD) is None


@pytest.mark.parametrize(
    ("path", "value", "difference"),
    [
        ("model.clip.clip_high", 0.3, "model.clip.high was 0.28, model.clip.clip_high is 0.3"),
        ("trainer.gradient_clip_val", 1, "trainer.gradient_clip_val was 1.0, trainer.gradient_clip_val is 1"),
        ("model.clip", {**NEW["model"]["clip"], "clip_low": 0.28, "clip_high": 0.2}, "model.clip.low was 0.2"),
        ("model.clip.level", "sequence", "model.clip.level was 'token', model.clip.level is 'sequence'"),
        ("data.annotators.self_reward.column", "other", "data.stages.probe.column was 'score'"),
        ("data.pipeline", ["self_reward", "reference"], "data.pipeline.0 was 'reference'"),
        ("data.pipeline", ["reference"], "data.pipeline was ['reference', 'probe']"),
        ("data.total", "${product:${trainer.max_epochs},${trainer.max_epochs}}", "data.total was"),
        ("data.total", "${product:${data.num_prompts},${trainer.max_epochs}}", "data.total was"),
        ("data.more", 1, "data was {'prompts': 32, 'stages':"),
        ("data.num_prompts", None, "data was {'prompts': 32, 'stages':"),
        ("model.clip._target_", "torch.nn.Identity", "model.clip._target_ was 'mmrl.objectives.policy.Clip'"),
    ],
)
def test_what_is_no_name_is_a_difference_with_both_paths(path, value, difference):
    assert ConfigComparison().find_difference(OLD, change(path, value)).startswith(difference)


def test_a_foreign_class_is_no_name():
    one, other = ({"optimizer": {"_target_": f"torch.optim.{name}", "lr": 1.0}} for name in ("AdamW", "SGD"))
    assert ConfigComparison().find_difference(one, other) == (
        "optimizer._target_ was 'torch.optim.AdamW', optimizer._target_ is 'torch.optim.SGD'"
    )


def test_a_name_has_one_new_name_in_all_configurations():
    comparison = ConfigComparison()
    assert comparison.find_difference(OLD, NEW) is None
    moved = change("model.clip._target_", "mmrl.losses.Other")
    assert "two new names, mmrl.losses.Clip and mmrl.losses.Other" in comparison.find_difference(OLD, moved)
    swapped = copy.deepcopy(NEW)
    swapped["model"]["clip"] = {"_target_": "mmrl.losses.Clip", "clip_high": 0.2, "clip_low": 0.28, "level": "token"}
    assert "low has two new names, clip_low and clip_high" in comparison.find_difference(OLD, swapped)


def test_recorded_forms_and_words_are_accepted_and_nothing_beside_them():
    flag = Form({"take": "frozen"}, {"frozen_only": True}, "a flag")
    default = Form(None, {"capture": False}, "the default is written down")
    comparison = ConfigComparison([flag, default], {"probe_score": "self_reward"})
    old = {"take": "frozen", "lr": 1.0, "column": "probe_score"}
    assert (
        comparison.find_difference(old, {"lr": 1.0, "frozen_only": True, "capture": False, "column": "self_reward"})
        is None
    )
    assert comparison.find_difference(old, {"lr": 1.0, "frozen_only": False, "column": "self_reward"})
    assert comparison.find_difference(old, {"lr": 1.0, "frozen_only": True, "capture": True, "column": "self_reward"})
    assert comparison.find_difference(old, {"lr": 1.0, "frozen_only": True, "column": "other"})
