"""Pairs of frames: who is drawn, which observation a transition is judged by, and labels on disk."""

import numpy as np
import pytest

from mmrl.core.errors import ConfigError
from mmrl.methods.control.offline_rl_vlm_f.pairs import (
    draw_pairs,
    find_goal,
    frames_after,
    read_labels,
    read_pairs,
    write_labels,
)
from tests.methods.control.offline_rl_vlm_f.recording import bright_episodes


def test_pairs_are_two_different_transitions_and_every_one_is_drawn():
    places = draw_pairs([2, 1, 3], 2000, np.random.default_rng(0))
    flat = {tuple(place) for place in places.reshape(-1, 2).tolist()}
    assert flat == {(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)}
    assert (places[:, 0] != places[:, 1]).any(1).all()
    counts = np.unique(places.reshape(-1, 2), axis=0, return_counts=True)[1]
    assert abs(counts / 4000 - 1 / 6).max() < 0.03


def test_a_transition_is_judged_by_the_observation_after_it():
    episode = bright_episodes(1)[0]
    levels = frames_after(episode, "image")[:, 0, 0, 0]
    assert levels.tolist() == episode.rewards.tolist()  # the reward is the brightness of the next picture
    episode.final = None
    assert frames_after(episode, "image")[:, 0, 0, 0].tolist() == [
        *levels[:-1],
        episode.observations["image"][-1, 0, 0, 0],
    ]
    with pytest.raises(
        ValueError, match=r"episode 0: .* 'wrist'.*\['image', 'state'\].*data\.relabelling\.observation"
    ):
        frames_after(episode, "wrist")


def test_frames_and_rewards_of_pairs():
    dataset = bright_episodes()
    places = draw_pairs(dataset.lengths(), 20, np.random.default_rng(0))
    for pair, ((i, s), (j, t)) in zip(read_pairs(dataset, places, "image", "goal"), places.tolist()):
        assert pair.rewards == (dataset[i].rewards[s], dataset[j].rewards[t]) and pair.goal == "goal"
        assert (pair.first == frames_after(dataset[i], "image")[s]).all()
        assert (pair.second == frames_after(dataset[j], "image")[t]).all()
    assert read_pairs(bright_episodes(rewards=False), places, "image", "goal")[0].rewards is None


def test_the_goal_is_given_or_the_only_instruction():
    dataset = bright_episodes()
    assert find_goal(dataset, None) == "a bright room" and find_goal(dataset, "dark") == "dark"
    dataset.episodes[2].instruction = "a dark room"
    with pytest.raises(ConfigError, match=r"bright rooms: .*a dark room.*data\.relabelling\.goal"):
        find_goal(dataset, None)


def test_labels_on_disk(tmp_path):
    file = tmp_path / "new" / "labels.jsonl"
    places = np.array([[[0, 1], [1, 0]], [[1, 0], [0, 0]]])
    write_labels(file, places, [1, -1], "goal")
    read, labels = read_labels(file, [2, 1])
    assert read.tolist() == places.tolist() and labels == [1, -1]


@pytest.mark.parametrize(
    "line",
    ["[]", "nonsense", '{"first": [0, 2], "second": [0, 0], "label": 0}',
     '{"first": [0, 0], "second": [2, 0], "label": 0}',
     '{"first": [0, 0], "second": [1, 0], "label": 2}', '{"first": [0, true], "second": [1, 0], "label": 1}'],
)  # fmt: skip
def test_labels_of_another_recording_are_refused(tmp_path, line):
    file = tmp_path / "labels.jsonl"
    file.write_text('{"first": [0, 0], "second": [1, 0], "label": 0}\n' + line + "\n")
    with pytest.raises(ConfigError, match=r"labels\.jsonl line 2: .* no label of this recording"):
        read_labels(file, [2, 1])


def test_files_without_labels_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    for name in ("empty.jsonl", "absent.jsonl"):
        with pytest.raises(ConfigError, match=rf"data\.relabelling\.labels=.*{name}"):
            read_labels(tmp_path / name, [2, 1])
