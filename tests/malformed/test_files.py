"""Malformed files are refused before anything is trained, in a short message: the place, the value, what to do."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from mmrl.callbacks.warm_start import load_policy
from mmrl.commands.evaluation.data import check_contract
from mmrl.core.errors import ConfigError
from mmrl.data.checks.prompt_lengths import check_prompt_lengths
from mmrl.datasets.formats import open_dataset
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.text.policy import TextPolicy
from tasks.dataset import DatasetTask
from tests.malformed.files import datasets, images, lengths, policies, rows, runs, tables
from tests.malformed.files.case import Case
from tests.malformed.files.refusals import check_message, commanded, refused


def table(*cases):
    return pytest.mark.parametrize("case", [case for part in cases for case in part], ids=lambda case: case.name)


@table(rows.ROWS, rows.PAIRS, images.IMAGES, tables.TABLES)
def test_rows_and_images_are_refused_before_the_first_is_used(case, tmp_path):
    task = case.build(tmp_path)
    refused(lambda: len(task), case)


@pytest.mark.parametrize("name", images.ODD)
def test_odd_images_are_right(name, tmp_path):
    task = images.ODD[name](tmp_path)
    assert task[0].images[0].dtype == np.uint8 and task[0].images[0].shape[2] == 3


@pytest.mark.parametrize(
    ("content", "question"),
    [
        (b"\xef\xbb\xbf" + rows.text_of(rows.GOOD), "+1?"),
        (rows.text_of(rows.GOOD).replace(b"\n", b"\r\n"), "+1?"),
        (rows.text_of(rows.GOOD) + '{"question": "😀 ☃", "answer": "\U0001d11e"}\n'.encode(), "😀"),
        (rows.text_of(rows.GOOD) + b'{"question": "\\ud83d\\ude00", "answer": 1}', "😀"),
        (rows.text_of(rows.GOOD) + '{"question": "a\u2028b\x7f", "answer": 1}'.encode(), "\u2028"),
        (rows.text_of(rows.GOOD + rows.GOOD), "+1?"),
        (rows.text_of([*rows.GOOD, {"question": "3+1?", "answer": "4.0"}]), "+1?"),
        (rows.text_of([*rows.GOOD, {"question": "2^200?", "answer": str(2**200)}]), "2^200"),
        (rows.text_of(rows.GOOD[:2]), "+1?"),
    ],
    ids=["BOM", "CRLF", "emoji", "escaped pair", "line separator", "rows twice", "4.0", "61 digits", "two problems"],
)
def test_odd_rows_are_right(content, question, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(content)
    task = DatasetTask(str(tmp_path / "rows.jsonl"), held_out_fraction=0.2)
    every = [*(task[i] for i in range(len(task))), *(task.on("held_out")[i] for i in range(len(task.on("held_out"))))]
    assert any(question in prompt.messages[0]["content"] for prompt in every)


def test_images_of_another_folder_and_larger_ones_are_right_where_they_are_asked_for(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "x.png").write_bytes(images.png(7000, 5000, bytes(876 * 5000)))
    rows = [{"question": f"{i}?", "answer": i, "image": "x.png"} for i in range(2)]
    (tmp_path / "rows" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = DatasetTask(str(tmp_path / "rows" / "a.jsonl"), images="image", image_folder=str(tmp_path), max_pixels=2**26)
    assert task[0].images[0].shape == (5000, 7000, 3)


@table(datasets.LEROBOT, datasets.HDF5)
def test_datasets_are_refused(case, tmp_path, capsys):
    commanded(["data", "inspect", case.build(tmp_path), f"out={tmp_path}"], case, capsys)


@pytest.mark.parametrize("name", ["an action that is NaN", "an action that is infinite", "an action of 3e38"])
def test_all_episodes_are_checked_before_the_first_is_learned_from(name, tmp_path):
    case = next(case for case in datasets.LEROBOT if case.name == name)
    expected = "action is (not finite|3e.38, larger than 1e.09,) at control step 2"
    dataset = open_dataset(case.build(tmp_path))
    refused(dataset.check, Case(name, case.build, "set episode 1", expected))


def test_right_datasets_are_read(tmp_path):
    for build in (datasets.lerobot(), datasets.remove("meta/stats.json"), datasets.remove("meta/mmrl.json")):
        dataset = open_dataset(build(tmp_path))
        dataset.check()
        assert len(dataset) == 3 and len(dataset[1]) == 5
        shutil.rmtree(tmp_path / "set")
    (tmp_path / "minari").mkdir()
    for build, place in ((datasets.robomimic, tmp_path), (datasets.minari, tmp_path / "minari")):
        dataset = open_dataset(build(lambda file: None)(place))
        dataset.check()
        assert len(dataset) == 2 and len(dataset[0]) == 4


@table(policies.TEXT)
def test_folders_of_language_models_are_refused(case, tmp_path):
    path = case.build(tmp_path)
    refused(lambda: TextPolicy(path=str(path)), case)


@table(policies.CONTROL)
def test_folders_of_our_own_policies_are_refused(case, tmp_path):
    path = case.build(tmp_path)
    refused(lambda: ControlPolicy(path=str(path)), case)


@table(policies.CHECKPOINTS)
def test_checkpoints_that_do_not_fit_are_refused(case, tmp_path):
    path = case.build(tmp_path)
    refused(lambda: load_policy(policies.text_policy(), str(path)), case)


@table(runs.STATED)
def test_what_a_run_states_is_refused(case, tmp_path):
    folder = case.build(tmp_path)
    refused(lambda: check_contract(folder, {}), case)


@table(runs.RESULTS)
def test_earlier_measurements_are_refused(case, tmp_path):
    folder = case.build(tmp_path)
    refused(lambda: EvaluationResult.read(folder), case)


def test_a_right_measurement_is_read(tmp_path):
    ((episode,),) = EvaluationResult.read(runs.result()(tmp_path)).episodes["last"].values()
    assert episode.scores == {"exact": 1.0} and episode.info["tokens"] == 3


def test_a_contract_of_many_other_entries_is_told_in_few_lines(tmp_path, capsys):
    (tmp_path / "contract.json").write_text(json.dumps({f"entry{i}": "x" * 1000 for i in range(500)}))
    case = Case("many entries", lambda folder: folder, r"contract\.json", "500 entries differ.*set the sim's options")
    with pytest.raises(ConfigError) as caught:
        check_contract(tmp_path, {})
    check_message(capsys.readouterr().err + str(caught.value), case)


@table(lengths.CASES)
def test_prompts_that_do_not_fit_are_refused(case, tmp_path):
    task, max_tokens = case.build(tmp_path)
    refused(lambda: check_prompt_lengths(task, policies.text_policy(), max_tokens), case)


@pytest.mark.parametrize("build", lengths.FITTING)
def test_prompts_that_fit_are_right(build, tmp_path):
    task, max_tokens = build(tmp_path)
    check_prompt_lengths(task, policies.text_policy(), max_tokens)


def test_prompts_are_only_tokenised_near_the_limit(tmp_path):
    """Ten thousand short questions and one of 50 MB are decided without reading them token by token."""
    counted = []

    class Counting(TextPolicy):
        def encode(self, raw):
            counted.append(len(raw["messages"][0]["content"]))
            return super().encode(raw)

    policy = Counting(config=dict(policies.SMALL))
    short = [{"question": f"{i}?", "answer": i} for i in range(10_000)]
    check_prompt_lengths(lengths.rows(short)(tmp_path), policy, 64)
    assert counted == [1]
    with pytest.raises(ValueError, match="more than 2048 tokens"):
        check_prompt_lengths(
            lengths.rows([*short[:2], {"question": "x" * (5 * 10**7), "answer": 1}])(tmp_path), policy, 64
        )
    assert counted == [1, 1]
