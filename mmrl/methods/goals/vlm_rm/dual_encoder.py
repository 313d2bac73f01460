"""VLM-RM: a small encoder of pictures and sentences, fitted to captions, in the place of a pretrained CLIP.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021, arXiv:2103.00020.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.core.rng import derive_rng, derive_seed
from mmrl.rewards.models.captions import SceneCaptions

_BUCKETS = 512  # of words, by their hash
_HIGHEST_SCALE = 100.0  # of similarities, as CLIP's


class DualEncoder(nn.Module):
    """Unit embeddings [N, D] of pictures, by a convolutional network, and of sentences, by the mean of their words.

    Args:
        image_size: pixels a side.
        width: channels, and width of the hidden layers.
        dims: D.
        seed: of the weights.
    """

    def __init__(self, image_size: int, width: int = 64, dims: int = 32, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("dual_encoder", seed) % 2**63)
            self.convolutions = nn.Sequential(
                *(nn.Conv2d(3, width // 2, 3, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 3, 2, 1), nn.ReLU()),
                *(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Flatten()),
            )
            side = (image_size + 3) // 4  # pixels after two halvings, rounded up
            self.image_proj = nn.Sequential(nn.Linear(side**2 * width, width), nn.ReLU(), nn.Linear(width, dims))
            self.words = nn.EmbeddingBag(_BUCKETS, width)
            self.text_proj = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, dims))
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def embed_images(self, images: Tensor) -> Tensor:
        """Embeddings [N, D] of pictures uint8 [N, S, S, 3]."""
        pixels = images.permute(0, 3, 1, 2).float() / 127.5 - 1
        return nn.functional.normalize(self.image_proj(self.convolutions(pixels)), dim=-1)

    def embed_sentences(self, sentences: Sequence[str]) -> Tensor:
        """Embeddings [K, D] of sentences; a word of no caption is as good as random."""
        ids = [[zlib.crc32(word.encode()) % _BUCKETS for word in sentence.lower().split()] for sentence in sentences]
        starts = np.cumsum([0, *(len(words) for words in ids[:-1])])
        device = self.log_scale.device
        flat = torch.tensor([i for words in ids for i in words], device=device)
        means = self.words(flat, torch.from_numpy(starts).to(device))
        return nn.functional.normalize(self.text_proj(means), dim=-1)

    def scale(self) -> Tensor:
        """Factor of similarities in the loss."""
        return self.log_scale.exp().clamp(max=_HIGHEST_SCALE)


@torch.inference_mode(False)
@torch.enable_grad()
def fit_dual_encoder(captions: SceneCaptions, steps: int, batch_size: int, lr: float, seed: int) -> DualEncoder:
    """Fit an encoder to captioned pictures by `contrastive_loss`.

    Args:
        captions: scenes that are drawn anew in every step.
        steps: of Adam, whose learning rate decreases to 0.
        batch_size: pictures of a step.
        lr: first learning rate.
        seed: of weights and pictures.
    """
    rng = derive_rng("dual_encoder", "captions", seed)
    model = DualEncoder(captions.draw(rng, 1)[0].shape[1], seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        images, sentences = captions.draw(rng, batch_size)
        distinct = sorted(set(sentences))
        # [N, K] similarities of pictures and distinct sentences
        similarity = model.embed_images(torch.from_numpy(images)) @ model.embed_sentences(distinct).T
        label = torch.tensor([distinct.index(sentence) for sentence in sentences])
        loss = contrastive_loss(model.scale() * similarity, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


def contrastive_loss(logits: Tensor, label: Tensor) -> Tensor:
    """CLIP's symmetric loss, nats, of N pictures and K distinct sentences, where a sentence may have several pictures.

    Half the mean over pictures of -log P(their sentence | picture) plus half the mean over sentences of
    -log P(one of their pictures | sentence), with softmaxes over sentences and over pictures.
    Source: arXiv:2103.00020, figure 3, which has one picture for each sentence.

    Args:
        logits: [N, K] scaled similarities.
        label: [N] index of the picture's sentence; every sentence has a picture.
    """
    of_images = nn.functional.cross_entropy(logits, label)
    is_own = torch.zeros_like(logits, dtype=torch.bool)
    is_own[torch.arange(len(label)), label] = True
    among = logits.log_softmax(0).masked_fill(~is_own, float("-inf")).logsumexp(0)  # [K]
    return (of_images - among.mean()) / 2
