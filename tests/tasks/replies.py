"""Episodes as a rollout would leave them, made by hand."""

import torch

from mmrl.core.types import Completion, Episode, Prompt, Turn


def reply(prompt: Prompt, output: object) -> Episode:
    """An episode whose only turn says `output`."""
    one = torch.zeros(1)
    return Episode(prompt, 0, 0, [Turn(Completion({}, one.long(), one, one.bool(), output))])
