"""Videos of a simulator: one frame per control step, the instruction, and every outcome."""

import numpy as np
import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.video.clips import HOLD, compose_video, get_outcome
from mmrl.evaluation.video.recording import EpisodeVideo, EpisodeVideos, VideoSim
from mmrl.files.contract import differences, read_contract, write_contract
from sims.tabletop import Reach, expert


def test_every_control_step_of_the_first_envs_is_an_image():
    sim = VideoSim(Reach(threads=1), 2, 32)
    env = sim.make(3)
    executed = np.zeros(3, int)
    env.reset(seed=[1, 2, 3])
    while env.env.live.any():
        live = env.env.live.copy()
        *_, infos = env.step(expert(env.env))
        executed += np.where(live, infos["executed"], 0)
    sim.close()
    assert [len(video.frames) for video in sim.videos] == [1 + executed[0], 1 + executed[1]]
    assert sim.videos[0].frames[0].shape == (32, 32, 3)
    assert sim.videos[0].instruction.startswith("reach the ")
    assert sim.fps == 20


def shown(*successes: float, first: int = 0) -> EpisodeVideos:
    videos = [EpisodeVideo([np.zeros((32, 32, 3), np.uint8)] * 3, "reach") for _ in successes]
    episodes = [
        Episode(Prompt(f"t/held_out/{first + i}"), i, 0, scores={"success": s, "wrong": 1 - s})
        for i, s in enumerate(successes)
    ]
    return EpisodeVideos(videos, episodes, 20)


def test_clips_follow_each_other_in_order_and_hold_their_last_image():
    assert len(compose_video({"before": shown(0, 1), "after": shown(1, 1)}, "success")) == 2 * (3 + HOLD)


def test_clips_of_other_states_are_refused():
    with pytest.raises(ValueError, match="same initial states"):
        compose_video({"before": shown(0), "after": shown(1, first=5)}, "success")


def test_an_outcome_is_named_after_what_happened():
    win, lose = shown(1, 0).episodes
    assert (get_outcome(win, "success"), get_outcome(lose, "success")) == ("success", "wrong")
    lose.scores["wrong"] = 0.0
    lose.ended = "time"
    assert get_outcome(lose, "success") == "out of time"


def test_a_contract_read_back_is_the_same_and_differences_are_named(tmp_path):
    contract = Reach(threads=1).contract()
    write_contract(tmp_path, contract)
    assert differences(read_contract(tmp_path), contract) == []
    other = Reach(threads=1, chunk=3).contract()
    assert differences(read_contract(tmp_path), other) == ["chunk: 5 in training, 3 here"]
    assert read_contract(tmp_path / "nowhere") is None
