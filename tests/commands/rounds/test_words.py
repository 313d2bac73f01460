"""Overrides of the file, the stage and the command line: of one key the last one counts."""

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.commands.rounds.words import build_words, derive_step_seed, fit_words, merge_words, score_words
from tests.commands.rounds.tiny import STAGES, write_file


def test_of_one_key_the_last_one_counts():
    assert merge_words(["a=1", "b=2"], ["a=3"], ["+b=4"]) == ["a=3", "+b=4"]


def test_a_group_takes_the_place_of_earlier_keys_below_it():
    words = ["task=strings", "task.levels=[1]", "data.task={count: 2}", "data.task.seed=1", "data.num_prompts=2"]
    assert merge_words(words, ["task=dataset", "task.path=rows.jsonl"]) == [
        *("data.num_prompts=2", "task=dataset", "task.path=rows.jsonl")
    ]


def test_the_command_line_takes_precedence_and_folders_are_written(tmp_path):
    stages = {
        **STAGES,
        "again": {"kind": "score", "reads": "grow", "overrides": ["reward.path=${folder.learn}/policy"]},
    }
    words = ["optimizer.lr=1e-6", "trainer.max_epochs=1"]
    file = read_rounds([str(write_file(tmp_path / "mine.yaml", stages=stages)), *words])
    steps = {step.stage_name: step for step in list_steps(file)}
    learn = build_words(file, steps["learn"], tmp_path)
    assert {"optimizer.lr=1e-6", "trainer.max_epochs=1"} <= set(learn) and "optimizer.lr=1e-2" not in learn
    assert f"reward.path={tmp_path}/1/learn/policy" in build_words(file, steps["again"], tmp_path)
    assert not [word for word in score_words(learn) if word.startswith("policy") and word != "policy=no_policy"]


def test_a_fit_reads_rows_or_pairs_from_weights(tmp_path):
    file = read_rounds([str(write_file(tmp_path / "mine.yaml"))])
    step = next(step for step in list_steps(file) if step.kind == "fit")
    words = fit_words(["rollout=demonstrations"], step, tmp_path / "rows.jsonl", True, "last.ckpt")
    assert words == [
        *("rollout=answer_pairs", f"rollout.path='{tmp_path}/rows.jsonl'"),
        *("trainer.callbacks.warm_start.checkpoint='last.ckpt'", "trainer.callbacks.warm_start.stages=null"),
    ]
    assert fit_words(["recipe=grpo"], step, None, False, None) == ["recipe=grpo"]


def test_every_step_has_draws_of_its_own(tmp_path):
    file = read_rounds([str(write_file(tmp_path / "mine.yaml")), "rounds=3"])
    seeds = [derive_step_seed(file, step) for step in list_steps(file)]
    assert len(set(seeds)) == 15 and all(0 <= seed < 2**31 for seed in seeds)
    more = read_rounds([str(tmp_path / "mine.yaml"), "rounds=4"])
    assert [derive_step_seed(more, step) for step in list_steps(more)][:15] == seeds
