"""Image encoder of Diffusion Policy: a ResNet whose feature maps become points of the image."""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.transforms.functional import center_crop, resize

from mmrl.policies.vla.diffusion_policy.settings import DiffusionSettings
from mmrl.policies.vla.lerobot.resnet import feature_size


class SpatialSoftmax(nn.Module):
    """Expected position of each of K feature maps: sum over pixels of softmax(map) * (x, y), both in [-1, 1].

    Source: Finn et al., "Deep Spatial Autoencoders for Visuomotor Learning", 2016, section IV, arXiv:1509.06113.

    Args:
        channels: of the features.
        height: of the features.
        width: of the features.
        points: K, maps that a linear layer computes from the channels.
    """

    def __init__(self, channels: int, height: int, width: int, points: int):
        super().__init__()
        self.nets = nn.Conv2d(channels, points, kernel_size=1)
        rows, columns = (torch.linspace(-1, 1, size, dtype=torch.float64) for size in (height, width))
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        self.register_buffer("pos_grid", torch.stack([x, y], dim=-1).reshape(-1, 2).float())

    def forward(self, features: Tensor) -> Tensor:
        """Compute positions [M, K, 2] from features [M, C, h, w]."""
        return self.nets(features).flatten(2).softmax(dim=-1) @ self.pos_grid


class ImageEncoder(nn.Module):
    """ResNet without its head, spatial softmax and a linear layer: features [M, 2 K] of images [M, 3, H, W].

    Crops are taken from the centre, in training too. BatchNorm keeps its running statistics, so that learning computes
    what acting computed.

    Args:
        settings: of the checkpoint.
    """

    def __init__(self, settings: DiffusionSettings):
        super().__init__()
        self.resize_shape, self.crop = settings.resize_shape, settings.crop
        net: Any = torchvision.models.get_model(settings.vision_backbone, weights=None)
        if settings.use_group_norm:
            replace_batch_norm(net)
        self.backbone = nn.Sequential(*list(net.children())[:-2])
        points = settings.spatial_softmax_num_keypoints
        self.pool = SpatialSoftmax(net.fc.in_features, *feature_size(settings.image_size), points)
        self.out = nn.Linear(2 * points, 2 * points)

    def forward(self, images: Tensor) -> Tensor:
        if self.resize_shape is not None:
            images = resize(images, list(self.resize_shape), antialias=True)
        if self.crop is not None:
            images = center_crop(images, list(self.crop))
        return self.out(self.pool(self.backbone(images)).flatten(1)).relu()

    def train(self, mode: bool = True) -> ImageEncoder:
        super().train(mode)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()
        return self


def replace_batch_norm(module: nn.Module) -> None:
    """Replace every BatchNorm by a GroupNorm of 16 channels a group."""
    for name, part in module.named_children():
        if isinstance(part, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(part.num_features // 16, part.num_features))
        else:
            replace_batch_norm(part)
