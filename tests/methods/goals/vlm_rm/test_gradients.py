"""VLM-RM's encoder: its scale, what it makes of pixels, and gradients against differences."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.methods.goals.vlm_rm.dual_encoder import DualEncoder, contrastive_loss


def test_the_scale_begins_at_10_is_learned_and_at_most_100():
    model = DualEncoder(8)
    assert model.scale().item() == pytest.approx(10) and "log_scale" in dict(model.named_parameters())
    torch.nn.init.constant_(model.log_scale, 9.0)
    assert model.scale().item() == 100


def test_pixels_are_between_minus_1_and_1():
    model = DualEncoder(8)
    pictures = torch.stack([torch.zeros(8, 8, 3), torch.full((8, 8, 3), 255)]).to(torch.uint8)
    pixels = torch.stack([-torch.ones(3, 8, 8), torch.ones(3, 8, 8)])
    expected = model.image_proj(model.convolutions(pixels))
    assert_close(model.embed_images(pictures), expected / expected.norm(dim=-1, keepdim=True))


def test_words_learn():
    model = DualEncoder(8)
    model.embed_sentences(["a wall"])[0, 0].backward()
    assert model.words.weight.grad.abs().sum() > 0


def test_the_loss_has_the_gradient_of_differences():
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double, requires_grad=True)
    label = torch.tensor([0, 1, 0, 1])
    assert torch.autograd.gradcheck(lambda values: contrastive_loss(values, label), logits)
