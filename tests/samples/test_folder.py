"""Files of samples: what is written is read, older iterations are thinned out, later ones are replaced."""

import json
import os

import pytest

from mmrl.samples.folder import SampleFolder

TURN = {"tokens": ["2"], "chosen": [1], "logprobs": [-0.5]}


def group(**more):
    episode = {"sample_index": 0, "ended": "done", "reward": 1.0, "scores": {"exact": 1.0}, "turns": [TURN]}
    return {"group": 0, "key": "a/train/0", "messages": [], "episodes": [episode], **more}


def test_what_is_written_is_read(tmp_path):
    groups = [group(text="line\nbreak \u2028 \x00 \ud800 é"), group(numbers=[None, 1.5])]
    SampleFolder(tmp_path).write(3, groups)
    first, second = SampleFolder(tmp_path).read(3)
    assert first["text"] == "line\nbreak \u2028 \x00 ? é" and second == groups[1]


def test_disk_use_is_bounded_and_the_newest_file_stays(tmp_path):
    SampleFolder(tmp_path).write(0, [group()])
    size = (tmp_path / "rollouts" / "0.jsonl").stat().st_size
    folder = SampleFolder(tmp_path, max_bytes=10 * size)
    for iteration in range(100):
        folder.write(iteration, [group()])
        assert sum(file.stat().st_size for file in folder.path.iterdir()) <= 10 * size
        assert folder.iterations()[-1] == iteration
    assert folder.iterations() == [0, 16, 32, 48, 64, 80, 96, 99]


def test_one_iteration_larger_than_the_bound_is_kept(tmp_path):
    folder = SampleFolder(tmp_path, max_bytes=10)
    for iteration in range(3):
        folder.write(iteration, [group()])
    assert folder.iterations() == [2]


def test_a_resumed_run_replaces_the_iterations_that_it_repeats(tmp_path):
    before = SampleFolder(tmp_path)
    for iteration in range(5):
        before.write(iteration, [group(run=1)])
    after = SampleFolder(tmp_path)
    after.write(2, [group(run=2)])
    assert after.iterations() == [0, 1, 2] and after.read(2) == [group(run=2)]


def test_a_missing_or_broken_file_is_refused_by_name(tmp_path):
    folder = SampleFolder(tmp_path)
    folder.write(1, [group()])
    with pytest.raises(ValueError, match=r"4\.jsonl: no such file; iterations with samples are: 1"):
        folder.read(4)
    (folder.path / "1.jsonl").write_text(json.dumps(group()) + '\n{"b":')
    with pytest.raises(ValueError, match=r"1\.jsonl:2"):
        folder.read(1)


@pytest.mark.parametrize(
    "broken, message",
    [
        ({"group": "0"}, "group: must be a whole number, is a text"),
        ({"key": None}, "key: must be a text, is null"),
        ({"messages": {}}, "messages: must be a list, is an object"),
        ({"messages": ["x"]}, "messages: must be an object with named entries, is a text"),
        ({"images": [1]}, "images: must be a text, is a number"),
        ({"episodes": [{"ended": "done"}]}, "sample_index: must be a whole number, is null"),
        ({"episodes": [{"sample_index": 0, "ended": "done", "scores": {"a": "b"}}]}, "scores: a: must be a number or"),
        (
            {"episodes": [{"sample_index": 0, "ended": "x", "turns": [{**TURN, "chosen": [1, 1]}]}]},
            "2 chosen for 1",
        ),
        ({"episodes": [{"sample_index": 0, "ended": "x", "turns": [{"tokens": [1]}]}]}, "tokens: must be a text"),
        ({"episodes": [{"sample_index": 0, "ended": "x", "calls": ["a"]}]}, "calls: must be an object"),
    ],
)
def test_a_broken_group_is_refused_by_place(broken, message, tmp_path):
    folder = SampleFolder(tmp_path)
    folder.write(1, [group(), group(**broken)])
    with pytest.raises(ValueError, match=rf"1\.jsonl:2.*{message}"):
        folder.read(1)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused(make, tmp_path):
    samples = SampleFolder(tmp_path)
    samples.path.mkdir()
    make(samples.path / "0.jsonl")
    with pytest.raises(ValueError, match=r"0\.jsonl"):
        samples.read(0)
