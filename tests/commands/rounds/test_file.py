"""Rounds files are refused before anything runs, by stage and key."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from mmrl.__main__ import main
from mmrl.commands.rounds.checks import check_steps
from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.receipts import check_same_file, record_file
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.errors import ConfigError
from tests.commands.rounds.tiny import STAGES, write_file

BLOCK = {"for": {"least": [0.0, 0.5]}, "stages": {"keep": STAGES["keep"], "learn": STAGES["learn"]}}
FRESH = {"for": BLOCK["for"], "stages": {"further": STAGES["keep"]}}


def stages(**changes):
    """The tiny stages with changed keys; None takes a stage out."""
    result = copy.deepcopy(STAGES)
    for name, node in changes.items():
        if node is None:
            del result[name]
        elif name in result:
            result[name].update(node)
        else:
            result[name] = node
    return result


def read(tmp_path, *words, **values):
    file = read_rounds([str(write_file(tmp_path / "mine.yaml", **values)), *words])
    return file, list_steps(file)


WRONG = {
    "kind": (
        stages(keep={"kind": "filtre"}),
        r"stages\.keep\.kind: 'filtre' is no kind of stage\. Did you mean 'filter'",
    ),
    "no kind": ({"grow": {"count": 2}}, r"stages\.grow\.kind: None is no kind"),
    "key": (stages(keep={"quantil": 0.5}), r"stages\.keep\.quantil: .*Did you mean 'quantile'"),
    "type": (stages(grow={"count": "many"}), r"stages\.grow\.count: .*many"),
    "size": (stages(grow={"num_samples": 0}), r"stages\.grow\.num_samples must be at least 1, got 0"),
    "quantile": (stages(keep={"quantile": 1.5}), r"stages\.keep\.quantile must be in \[0, 1\], got 1\.5"),
    "reads": (stages(keep={"reads": "marks"}), r"stages\.keep\.reads: no earlier stage is named 'marks'.*mean 'mark'"),
    "later": ({"keep": STAGES["keep"], **STAGES}, r"stages\.keep\.reads: no earlier stage is named 'mark'"),
    "no rows": (stages(again={"kind": "filter", "reads": "learn"}), r"again\.reads: 'learn' .*kind fit.* no rows"),
    "nothing": (stages(keep={"reads": None}), r"stages\.keep\.reads: name the earlier stage"),
    "pairs": (
        stages(keep={"pairs": "best_worst"}, again={"kind": "filter", "reads": "keep"}),
        r"stages\.again\.reads: 'keep' writes pairs",
    ),
    "form of pairs": (stages(keep={"pairs": "all"}), r"stages\.keep\.pairs must be best_worst or best_lower"),
    "no such round": (stages(measure={"weights": "learn@3"}), r"measure\.weights: 'learn@3': there is no round 3"),
    "later round": (stages(measure={"weights": "learn@2"}), r"measure\.weights: .*no earlier stage of round 2"),
    "no weights": (stages(measure={"weights": "grow"}), r"measure\.weights: 'grow' is a sample stage"),
    "passes": (stages(learn={"reads": None, "passes": 2}), r"stages\.learn\.passes counts passes over rows"),
    "word": (stages(learn={"overrides": ["recipe"]}), r"stages\.learn\.overrides: 'recipe' is no override"),
    "name": ({"newest": STAGES["grow"]}, r"stages\.newest: 'newest' is no name of a stage"),
    "two of a name": (
        {"grow": STAGES["grow"], "block": {**BLOCK, "stages": {"grow": STAGES["grow"]}}},
        "has this name",
    ),
    "block": (stages(more={**FRESH, "kind": "fit"}), r"stages\.more\.kind: a block has the keys for, stages"),
    "lists": (stages(more={**FRESH, "for": {"a": [1], "b": [1, 2]}}), r"stages\.more\.for must be lists of one length"),
    "empty": ({}, "stages is empty"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_stage_is_refused_by_name_and_key(wrong, tmp_path):
    nodes, message = WRONG[wrong]
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, stages=nodes, rounds=2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"round": 2}, "unknown key 'round'. Did you mean 'rounds'"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"base": "nowhere.ckpt"}, "base=nowhere.ckpt: no such file"),
        ({"common": ["recipe"]}, "common must be a list of overrides key=value"),
    ],
)
def test_a_wrong_key_of_the_file_is_refused(values, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, **values)


def test_a_stage_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text(
        "stages:\n  grow: {kind: sample}\n  keep: &keep {kind: filter, reads: grow}\n  grow: {kind: sample}\n"
    )
    with pytest.raises(ConfigError, match=r"twice\.yaml: not YAML \(the key 'grow' stands twice"):
        read_rounds([str(path)])
    path.write_text("stages:\n  grow: &grow {kind: sample}\n  again: {<<: *grow, count: 2}\n")
    assert read_rounds([str(path)]).values["stages"]["again"] == {"kind": "sample", "count": 2}


CONFIGURATIONS = {
    "unknown override": (stages(learn={"overrides": ["recipe=sftt"]}), r"^stages\.learn: recipe=sftt: no such recipe"),
    "reserved": (stages(learn={"overrides": ["recipe=sft", "seed=3"]}), r"^stages\.learn: seed=3 is set by the rounds"),
    "completions for DPO": (
        stages(learn={"overrides": ["method=dpo", "setting=sums", "data.evaluation=null"]}),
        r"^stages\.learn: .*preference",
    ),
    "no evaluation": (
        stages(measure={"overrides": ["data.evaluation=null"]}),
        r"^stages\.measure: data\.evaluation is",
    ),
    "turns": (
        stages(grow={"overrides": ["evaluation.rollout={_target_: mmrl.rollouts.text.tools.ToolRollout}"]}),
        r"^stages\.grow: ",
    ),
    "filter": (stages(keep={"overrides": ["task=strings"]}), r"^stages\.keep: overrides: a filter runs no"),
}


@pytest.mark.parametrize("wrong", CONFIGURATIONS)
def test_a_stage_whose_configuration_is_wrong_is_refused_before_the_first_runs(wrong, tmp_path):
    nodes, message = CONFIGURATIONS[wrong]
    file, steps = read(tmp_path, stages=nodes)
    with pytest.raises(ConfigError, match=message):
        check_steps(file, steps, tmp_path / "run")


def test_steps_are_listed_in_order_with_their_references(tmp_path):
    block = copy.deepcopy(BLOCK)
    block["stages"]["keep"]["min"] = {"reward": "${least}"}
    nodes = {"grow": STAGES["grow"], "mark": STAGES["mark"], "improve": block, "measure": STAGES["measure"]}
    start = {"first": {"kind": "fit", "overrides": ["recipe=sft"]}}
    _, steps = read(tmp_path, stages=nodes, start=start, rounds=2)
    names = ["grow", "mark", "keep-1", "learn-1", "keep-2", "learn-2", "measure"]
    assert [step.name for step in steps] == ["0/first", *(f"{n}/{name}" for n in (1, 2) for name in names)]
    by_name = {step.name: step for step in steps}
    assert by_name["1/grow"].weights == by_name["1/learn-1"].weights == "0/first"
    assert by_name["1/learn-2"].weights == "1/learn-1" and by_name["2/grow"].weights == "1/learn-2"
    assert by_name["2/learn-2"].reads == ("2/keep-2",) and by_name["2/keep-2"].reads == ("2/mark",)
    assert [by_name[f"1/keep-{n}"].stage.min for n in (1, 2)] == [{"reward": 0.0}, {"reward": 0.5}]


def test_a_stage_of_the_start_stands_for_that_of_the_rounds_before_the_first(tmp_path):
    """Weights, rows and folders of a name are those of the start in round 1, and of round 1 in round 2."""
    start = {name: STAGES[name] for name in ("grow", "mark", "keep", "learn")}
    nodes = {
        "again": {"kind": "sample", "weights": "learn", "overrides": ["reward.path=${folder.learn}"]},
        "keep": {"kind": "filter", "reads": "again", "adds": ["keep"]},
        "learn": {**STAGES["learn"], "weights": "learn"},
    }
    steps = {step.name: step for step in read(tmp_path, start=start, stages=nodes, rounds=2)[1]}
    for number in (1, 2):
        before = f"{number - 1}/learn"
        again, keep, learn = (steps[f"{number}/{name}"] for name in ("again", "keep", "learn"))
        assert again.weights == learn.weights == before and again.folders == (before,)
        assert keep.adds == (f"{number - 1}/keep",) and learn.reads == (f"{number}/keep",)


def test_a_stage_of_the_start_with_the_name_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"stages\.grow: start\.grow has this name too; rename one of them"):
        read(tmp_path, start={"grow": {"kind": "fit", "overrides": ["recipe=sft"]}}, stages=STAGES)


def test_weights_of_a_round_or_of_the_base(tmp_path):
    nodes = stages(learn={"weights": "base"}, measure={"weights": "learn@1"})
    _, steps = read(tmp_path, stages=nodes, rounds=2)
    assert [step.weights for step in steps if step.kind == "fit"] == [None, None]
    assert [step.weights for step in steps if step.kind == "evaluate"] == ["1/learn", "1/learn"]


def test_the_command_line_changes_keys_and_adds_overrides(tmp_path):
    file, steps = read(tmp_path, "stages.grow.count=3", "rounds=2", "trainer.max_epochs=1")
    assert steps[0].stage.count == 3 and len(steps) == 10 and file.words == ["trainer.max_epochs=1"]
    with pytest.raises(ConfigError, match=r"the file has no stages\.grew"):
        read(tmp_path, "stages.grew.count=3")


def test_a_file_that_changed_is_refused_by_its_key_and_more_rounds_are_not(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    file, _ = read(tmp_path)
    assert not check_same_file(run, file)
    record_file(run, file)
    assert check_same_file(run, file)
    more, _ = read(tmp_path, "rounds=3")
    assert not check_same_file(run, more)
    record_file(run, more)
    for words, message in [
        (["rounds=2"], "another rounds: 3 before, now 2"),
        (["rounds=3", "stages.keep.min.reward=0.4"], r"another stages\.keep\.min\.reward: 0\.3 before, now 0\.4"),
        (["rounds=3", "seed=1"], "another seed: 0 before, now 1"),
        (["rounds=3", "optimizer.lr=1"], r"another words: \[\] before"),
    ]:
        with pytest.raises(ConfigError, match=message):
            check_same_file(run, read(tmp_path, *words)[0])
    with pytest.raises(ConfigError, match=r"another common\[3\]: 'policy.config.hidden_size=32' before"):
        common = yaml.safe_load((tmp_path / "mine.yaml").read_text())["common"]
        common[3] = "policy.config.hidden_size=64"
        check_same_file(run, read(tmp_path, "rounds=3", common=common)[0])


def test_the_command_refuses_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["rounds", "rset"]) == 2
    assert "Did you mean rest?" in capsys.readouterr().err
    write_file(Path("mine.yaml"), stages=stages(keep={"kind": "filtre"}))
    assert main(["rounds", "mine.yaml", "run_dir=run"]) == 2
    assert "stages.keep.kind" in capsys.readouterr().err and not Path("run").exists()


def test_headers_are_plain_values(tmp_path):
    file, _ = read(tmp_path, title="Mine")
    assert json.loads(json.dumps(file.values))["title"] == "Mine"
