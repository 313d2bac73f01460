"""Rows of a file with scores as labels: which labels an episode has, and what is refused."""

import pytest

from mmrl.rollouts.offline.labelled_rows import LabelledRows
from tests.rollouts.offline.test_answers import collect, line, write


def test_scores_of_a_row_are_its_labels(tmp_path):
    rows = [line(i, completion=str(i), scores={"flag_x": i % 2, "flag_z": 0.5, "exact": 1}) for i in range(4)]
    episodes = collect(LabelledRows(write(tmp_path / "rows.jsonl", *rows), ["flag_z", "flag_x"]))
    assert sorted(episode.prompt.index for episode in episodes) == [0, 1, 2, 3]
    for episode in episodes:
        (turn,) = episode.turns
        assert episode.output == str(episode.prompt.index)
        assert turn.completion.extra["labels"].tolist() == [0.5, episode.prompt.index % 2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (line(0, completion="a", scores={"exact": 1}), r"rows\.jsonl:1: no score \['flag_x'\] .* it has \['exact'\]"),
        (line(0, completion="a"), r"rows\.jsonl:1: no score \['flag_x'\]"),
        (line(0, scores={"flag_x": 1}), r"rows\.jsonl:1: completion is missing"),
        (line(50, completion="a", scores={"flag_x": 1}), "give the task with which the answers were sampled"),
    ],
)
def test_wrong_rows_are_refused_by_line(row, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        collect(LabelledRows(write(tmp_path / "rows.jsonl", row), ["flag_x"]))


@pytest.mark.parametrize("labels", [[], ["a", "a"]])
def test_labels_must_be_different_names(labels):
    with pytest.raises(ValueError, match=r"rollout\.labels must be different names"):
        LabelledRows("rows.jsonl", labels)
