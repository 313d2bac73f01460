"""VLM-RM's encoder and reward: the loss by hand, a fit that tells the goal from other scenes, a saved encoder."""

import math

import numpy as np
import pytest
import torch

from mmrl.methods.goals.vlm_rm.dual_encoder import DualEncoder, contrastive_loss, fit_dual_encoder
from mmrl.methods.goals.vlm_rm.reward import CaptionedSimilarity
from mmrl.rewards.models.captions import SceneCaptions
from mmrl.rewards.models.similarity import goal_baseline_reward


def test_the_loss_by_hand():
    """Two pictures of sentence 0 and one of sentence 1, all similarities 0 but that of the last pair, log 3.

    Pictures: -log 1/2, -log 1/2, -log 3/4. Sentence 0: two of three equal pictures, -log 2/3; sentence 1: one of
    weights 1, 1, 3, -log 3/5."""
    logits = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, math.log(3)]])
    images = (2 * math.log(2) + math.log(4 / 3)) / 3
    sentences = (math.log(3 / 2) + math.log(5 / 3)) / 2
    loss = contrastive_loss(logits, torch.tensor([0, 0, 1]))
    assert loss.item() == pytest.approx((images + sentences) / 2, abs=1e-6)


def test_with_a_picture_for_each_sentence_it_is_clips_loss():
    """The oracle is that of transformers."""
    from transformers.models.clip.modeling_clip import image_text_contrastive_loss

    logits = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    expected = image_text_contrastive_loss(logits.T)
    assert contrastive_loss(logits, torch.arange(5)).item() == pytest.approx(expected.item(), abs=1e-6)


class Shades(SceneCaptions):
    """Pictures of one grey level: "dark", "light", or "grey" in between; the goal is light."""

    def draw(self, rng, count):
        kind = rng.integers(3, size=count)
        shade = 100 * kind + rng.integers(20, size=count)
        return np.broadcast_to(shade[:, None, None, None], (count, 8, 8, 3)).astype(np.uint8), [
            f"a {('dark', 'grey', 'light')[k]} wall" for k in kind
        ]

    def goal_of(self, instruction):
        return f"a {instruction} wall"


def test_embeddings_are_of_unit_length_and_of_the_seed():
    images = torch.from_numpy(Shades().draw(np.random.default_rng(0), 4)[0])
    one, same, other = DualEncoder(8, seed=1), DualEncoder(8, seed=1), DualEncoder(8, seed=2)
    assert one.embed_images(images).norm(dim=-1).tolist() == pytest.approx([1] * 4)
    assert torch.equal(one.embed_images(images), same.embed_images(images))
    assert not torch.equal(one.embed_images(images), other.embed_images(images))
    words = one.embed_sentences(["a dark wall", "wall dark a", "a light wall"])
    assert torch.allclose(words[0], words[1]) and not torch.allclose(words[0], words[2])


def test_a_fitted_reward_is_largest_at_the_goal_and_is_read_again(tmp_path):
    """After 60 steps light pictures earn most where light is the goal, and dark ones where dark is."""
    path = str(tmp_path / "encoder.pt")
    options = {"baseline": "a grey wall", "steps": 40, "fit_batch_size": 32, "lr": 5e-3, "device": "cpu"}
    reward = CaptionedSimilarity(path, Shades(), **options)
    frames = np.stack([np.full((8, 8, 3), shade, np.uint8) for shade in (10, 110, 210)])
    with torch.no_grad():  # as a rollout asks
        light, dark = (reward(frames, frames, [text] * 3) for text in ("light", "dark"))
    assert light.argmax() == 2 and dark.argmax() == 0
    again = CaptionedSimilarity(path, Shades(), **{**options, "steps": 1})(frames, frames, ["light"] * 3)
    np.testing.assert_array_equal(again, light)
    encoder = reward.encoder
    words = encoder.embed_sentences(["a light wall", "a grey wall"])
    expected = goal_baseline_reward(encoder.embed_images(torch.from_numpy(frames)), words[0], words[1], 0.5)
    assert light == pytest.approx(expected.detach().numpy(), abs=1e-6)


def test_a_fit_depends_on_its_seed_alone():
    one, same = (fit_dual_encoder(Shades(), 3, 8, 1e-3, seed=4) for _ in range(2))
    torch.manual_seed(5)
    again = fit_dual_encoder(Shades(), 3, 8, 1e-3, seed=4)
    for left, right, third in zip(one.parameters(), same.parameters(), again.parameters()):
        assert torch.equal(left, right) and torch.equal(left, third)


@pytest.mark.parametrize("options, key", [({"steps": 0}, "steps"), ({"lr": 0.0}, "lr"), ({"alpha": 2.0}, "alpha")])
def test_numbers_out_of_range_are_refused(options, key):
    with pytest.raises(ValueError, match=key):
        CaptionedSimilarity("x", Shades(), "a wall", **options)
