"""Runs on videos: one iteration of GRPO and its export, chat, and what `mmrl plan` counts."""

from dataclasses import dataclass
from types import SimpleNamespace

import imageio.v2 as imageio
import lightning as L
import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.api.chat import Conversation
from mmrl.api.loaded_policy import LoadedPolicy
from mmrl.commands.planning.prompts import read_prompts
from mmrl.core.types import Sampling
from mmrl.curricula.sampler import Shuffled
from mmrl.data.parity import Parity
from mmrl.data.rollout_data import RolloutData
from mmrl.engines.local import LocalEngine
from mmrl.learners.learner import Learner
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.clips import Clips
from tests.policies.text.oracle import batch_of, completions, decided, plain_logits
from tests.videos import save_checkpoint


@dataclass(frozen=True)
class LetterClips(Clips):
    """Clips as videos, and a score that random policies reach: the share of letters."""

    video: bool = True

    def score(self, episode):
        return {"letters": sum(map(str.isalpha, episode.output)) / max(len(episode.output), 1)}


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl", "llava_onevision"])
def start(request, tmp_path_factory):
    return save_checkpoint(request.param, tmp_path_factory.mktemp("start"))


def test_an_iteration_of_grpo_is_exact_and_its_export_reads_videos(start, tmp_path):
    policy, task = decided(VisionLanguagePolicy(path=start), 3.0), LetterClips(kinds=("count",))
    data = RolloutData(
        task=task,
        rollout=SingleTurn(),
        engine=LocalEngine(),
        reward=WeightedSum({"letters": 1.0}),
        weighting=TokenMean(),
        curriculum=Shuffled(),
        sampling=Sampling(max_tokens=6),
        annotators={"group_advantage": GroupAdvantage()},
        pipeline=["group_advantage"],
        parity=Parity(),
        num_prompts=3,
        group_size=4,
    )
    learner = Learner(policy, Objective({"policy": ClippedSurrogate()}), lambda parts: torch.optim.Adam(parts, 1e-3))
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(learner, datamodule=data)
    moved = {name for name, weight in policy.named_parameters() if not torch.equal(weight, before[name])}
    assert any("visual" in name or "vision" in name for name in moved) and any("language_model" in n for n in moved)
    assert trainer.callback_metrics["train/policy/ratio"] == pytest.approx(1.0, abs=1e-4)
    policy.eval().save_pretrained(tmp_path)
    plain = SimpleNamespace(model=AutoModelForImageTextToText.from_pretrained(tmp_path).eval())
    plain.forbidden, plain.per_token = policy.forbidden, policy.per_token
    prompts = [task[i] for i in range(3)]
    done = completions(policy, prompts, Sampling(max_tokens=6))
    with torch.no_grad():
        scored = policy(batch_of(policy, prompts, done)).logprobs
    for row, completion in enumerate(done):
        expected = plain_logits(plain, completion).log_softmax(-1).gather(1, completion.action[:, None])[:, 0]
        assert (scored[row, : len(expected)] - expected).abs().max() < 1e-4


def test_the_plan_counts_the_tokens_of_videos(start):
    policy = VisionLanguagePolicy(path=start)
    tokens = []
    for frames in (4, 12):
        data = SimpleNamespace(rollout=SingleTurn(), task=LetterClips(kinds=("count",), frames=frames, movers=(1, 1)))
        prompts = read_prompts(policy, data, None)
        assert prompts.images
        tokens.append(prompts.longest)
    video = policy.encode(LetterClips(kinds=("count",), frames=12)[0].observation)["input_ids"]
    assert tokens[1] >= len(video) and tokens[1] - tokens[0] >= 4


def test_chat_reads_videos(start, tmp_path):
    policy = VisionLanguagePolicy(path=start)
    loaded = object.__new__(LoadedPolicy)
    loaded.policy, loaded.seed, loaded._calls, loaded._engine = policy, 0, 0, LocalEngine()
    loaded._engine.sync(policy, 0)
    loaded.sampling = Sampling(decode="argmax", max_tokens=4)
    frames = [np.full((64, 48, 3), 20 * i, np.uint8) for i in range(12)]
    imageio.mimsave(tmp_path / "a.mp4", frames, fps=10, macro_block_size=1)
    talk = Conversation(loaded)
    assert talk.reply(f"/video {tmp_path / 'none.mp4'}").endswith("none.mp4: no such file")
    assert talk.reply(f"/video {tmp_path / 'a.mp4'}") is None
    assert talk.reply("what?") == loaded.generate("what?", videos=[tmp_path / "a.mp4"])
    assert talk.videos == [tmp_path / "a.mp4"]
    (tmp_path / "b.mp4").write_bytes(b"no video")
    talk.reply(f"/video {tmp_path / 'b.mp4'}")
    assert talk.reply("and?").startswith("not answered: ") and talk.waiting_videos == []
