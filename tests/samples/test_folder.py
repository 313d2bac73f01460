"""Files of samples: what is written is read, older iterations are thinned out, later ones are replaced."""

import pytest

from mmrl.samples.folder import SampleFolder


def test_what_is_written_is_read(tmp_path):
    groups = [
        {"key": "a/train/0", "text": "line\nbreak \u2028 \x00 \ud800 é"},
        {"key": "a/train/1", "numbers": [None, 1.5]},
    ]
    SampleFolder(tmp_path).write(3, groups)
    first, second = SampleFolder(tmp_path).read(3)
    assert first["text"] == "line\nbreak \u2028 \x00 ? é" and second == groups[1]


def test_disk_use_is_bounded_and_the_newest_file_stays(tmp_path):
    size = len('{"text":"' + "x" * 1000 + '"}\n')
    folder = SampleFolder(tmp_path, max_bytes=10 * size)
    for iteration in range(100):
        folder.write(iteration, [{"text": "x" * 1000}])
        assert sum(file.stat().st_size for file in folder.path.iterdir()) <= 10 * size
        assert folder.iterations()[-1] == iteration
    assert folder.iterations() == [0, 16, 32, 48, 64, 80, 96, 99]


def test_one_iteration_larger_than_the_bound_is_kept(tmp_path):
    folder = SampleFolder(tmp_path, max_bytes=10)
    for iteration in range(3):
        folder.write(iteration, [{"text": "x" * 1000}])
    assert folder.iterations() == [2]


def test_a_resumed_run_replaces_the_iterations_that_it_repeats(tmp_path):
    before = SampleFolder(tmp_path)
    for iteration in range(5):
        before.write(iteration, [{"run": 1}])
    after = SampleFolder(tmp_path)
    after.write(2, [{"run": 2}])
    assert after.iterations() == [0, 1, 2] and after.read(2) == [{"run": 2}]


def test_a_missing_or_broken_file_is_refused_by_name(tmp_path):
    folder = SampleFolder(tmp_path)
    folder.write(1, [{}])
    with pytest.raises(ValueError, match=r"4\.jsonl: no such file; iterations with samples are: 1"):
        folder.read(4)
    (folder.path / "1.jsonl").write_text('{"a": 1}\n{"b":')
    with pytest.raises(ValueError, match=r"1\.jsonl:2"):
        folder.read(1)
