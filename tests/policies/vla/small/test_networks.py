"""Visual tokens by hand, backbones of timm, and where the centres of a grid's cells are."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.policies.vla.small.networks import SMALL_CONVNEXT, VisionEncoder, places


class Grid(nn.Module):
    """A backbone with the feature map [1, 1, 1, 2] (2, 4)."""

    def forward(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        return [torch.tensor([[[[2.0, 4.0]]]])]


def test_a_token_by_hand():
    """FiLM: relu(1.5 f - 1) = (2, 5); logits log 3 apart, so the map is (1/4, 3/4); x at (-4, 4), y at 0.

    Mean feature 2 / 4 + 3 * 5 / 4 = 4.25, position (2, 0), each plus the token's embedding of 1.
    """
    encoder = VisionEncoder("convnext_atto", SMALL_CONVNEXT | {"dims": (1,) * 4}, 2, 3, 1, sharpness=math.log(3) / 3)
    with torch.no_grad():
        for layer in (encoder.input_proj, encoder.map_proj):
            layer.weight.fill_(1.0)
            layer.bias.zero_()
        encoder.film[1].weight.zero_()
        encoder.film[1].bias.copy_(torch.tensor([0.5, -1.0]))
        encoder.pos_embed.fill_(1.0)
    encoder.backbone, encoder.projector = Grid(), nn.Identity()
    tokens, logits = encoder(torch.zeros(1, 4, 8, 3, dtype=torch.uint8), torch.ones(1, 2))
    assert_close(tokens, torch.tensor([[[5.25, 3.0, 1.0]]]))
    assert_close(logits, torch.tensor([[[[2.0, 5.0]]]]) * math.log(3) / 3)


def test_the_centres_of_cells():
    assert np.array_equal(places(2, 1), [[0, -4], [0, 4]])
    assert np.array_equal(places(1, 4), [[-6, 0], [-2, 0], [2, 0], [6, 0]])


@pytest.mark.parametrize(
    "name, arguments, grid",
    [
        ("convnext_atto", SMALL_CONVNEXT, 8),  # one cell for 4 x 4 pixels
        ("resnet18", {"out_indices": [2]}, 4),
        ("vit_tiny_patch16_224", {"img_size": 32, "depth": 1, "out_indices": [0]}, 2),
    ],
)
def test_backbones_of_timm(name, arguments, grid):
    encoder = VisionEncoder(name, arguments, text_size=4, token_size=6, tokens=3).eval()
    tokens, logits = encoder(torch.zeros(2, 32, 32, 3, dtype=torch.uint8), torch.zeros(2, 4))
    assert tokens.shape == (2, 3, 6) and logits.shape == (2, 3, grid, grid)
