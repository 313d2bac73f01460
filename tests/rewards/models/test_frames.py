"""Rewards from images: by hand, by a tiny CLIP that is saved and loaded, and by a critic of pairs."""

import numpy as np
import pytest
import torch
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

from mmrl.policies.vla.small.token import ActionTokenPolicy
from mmrl.rewards.models.progress import PairProgress, remaining_share
from mmrl.rewards.models.similarity import GoalBaselineSimilarity, goal_baseline_reward

GOAL, BASELINE, IMAGE = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.6, 0.8])


@pytest.mark.parametrize("alpha, expected", [(0.0, 0.60), (0.5, 0.63), (1.0, 0.64)])
def test_similarity_by_hand(alpha, expected):
    # s - g = (-.4, .8), d = (1, -1), (s - g).d / |d|^2 d = (-.6, .6):
    # alpha 0: 1 - .8 / 2; alpha 1: 1 - .72 / 2; alpha .5: M(s - g) = (-.5, .7), 1 - .74 / 2
    assert goal_baseline_reward(IMAGE, GOAL, BASELINE, alpha).item() == pytest.approx(expected, abs=1e-6)


def test_the_goal_itself_is_worth_one_and_needs_a_direction():
    for alpha in (0.0, 0.3, 1.0):
        assert goal_baseline_reward(GOAL, GOAL, BASELINE, alpha).item() == 1
    assert goal_baseline_reward(IMAGE, GOAL, BASELINE, 0.0).item() == pytest.approx((IMAGE @ GOAL).item())
    with pytest.raises(ValueError, match="no direction"):
        goal_baseline_reward(IMAGE, GOAL, GOAL, 0.5)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    tokenizer = CLIPTokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=[], model_max_length=24)
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = CLIPModel(
        CLIPConfig(
            text_config={**small, **ids, "vocab_size": len(tokens), "max_position_embeddings": 24},
            vision_config={**small, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
    )
    model.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    images = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=size)
    CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def test_a_saved_clip_judges_images(clip):
    frames = np.random.default_rng(0).integers(0, 256, (5, 48, 48, 3), dtype=np.uint8)
    reported = ["reach the red cube", "reach the red cube", "push it", "push it", "push it"]
    reward = GoalBaselineSimilarity(str(clip), baseline="a table", alpha=0.5, device="cpu", batch_size=2)
    given = reward(frames, frames, reported)
    model, processor = CLIPModel.from_pretrained(clip).eval(), CLIPProcessor.from_pretrained(clip)
    inputs = processor(text=[*reported, "a table"], images=list(frames), return_tensors="pt", padding=True)
    with torch.no_grad():
        out = model(**inputs)
    expected = goal_baseline_reward(out.image_embeds, out.text_embeds[:5], out.text_embeds[5], 0.5)
    assert given == pytest.approx(expected.numpy(), abs=1e-5) and len(set(given)) == 5
    plain, told_more = (
        GoalBaselineSimilarity(str(clip), "a table", goal=goal, alpha=0)(frames, frames, reported)
        for goal in ("{instruction}", "done {instruction}")
    )
    assert not np.allclose(plain, told_more)


def test_a_checkpoint_that_does_not_see_is_refused(tmp_path):
    from tests.checkpoints import qwen2

    with pytest.raises(ValueError, match="no pair of encoders"):
        GoalBaselineSimilarity(str(qwen2(tmp_path)), "a table")._sentence("x")


def test_progress_by_hand():
    # shares of 50 and 20 % of what remains: 0 -> .5 -> .6
    start, end = np.array([0.0, 0.5, 0.6, 0.6, 1.0, 1.0]), np.array([0.5, 0.6, 0.5, 0.6, 1.0, 0.0])
    assert remaining_share(start, end) == pytest.approx([0.5, 0.2, -0.2, 0.0, 0.0, -1.0])


def test_pairs_are_judged_by_a_policy_and_small_shares_are_none():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16, "visual_tokens": 2}
    critic = ActionTokenPolicy(action_dims=1, chunk=1, bins=21, proprio_dims=4, **sizes)
    before, after = np.random.default_rng(1).integers(0, 256, (2, 3, 32, 32, 3), dtype=np.uint8)
    reported = ["reach the red cube"] * 3
    shares = PairProgress(critic, batch_size=2)(before, after, reported)
    assert shares.shape == (3,) and (np.abs(shares) <= 1).all() and len(set(shares)) == 3
    assert PairProgress(critic, scale=2.0)(before, after, reported) == pytest.approx(2 * shares, abs=1e-5)
    dead = float(np.sort(np.abs(shares))[1])
    kept = PairProgress(critic, dead_zone=dead + 1e-4)(before, after, reported)
    assert (kept != 0).sum() == 1 and not any(p.requires_grad for p in critic.parameters())
