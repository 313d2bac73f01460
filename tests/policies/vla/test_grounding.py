"""Words steer the look: a small policy learns which of three squares an instruction names."""

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.objectives.grounding import MapCrossEntropy
from mmrl.objectives.imitation_bins import SmoothedNegativeLogLikelihood
from mmrl.policies.vla.small.token import ActionTokenPolicy

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 60, 230)}


def scenes(count: int, seed: int) -> tuple[list[dict], torch.Tensor]:
    """Three 4x4 squares in different corners of a 16x16 image; the instruction names one."""
    rng = np.random.default_rng(seed)
    raws, masks = [], torch.zeros(count, 16, 16, dtype=torch.bool)
    for i in range(count):
        image = np.full((16, 16, 3), 120, np.uint8)
        named = rng.integers(3)
        for k, corner in enumerate(rng.permutation(4)[:3]):
            row, column = 8 * (corner // 2) + rng.integers(4), 8 * (corner % 2) + rng.integers(4)
            image[row : row + 4, column : column + 4] = list(COLOURS.values())[k]
            if k == named:
                masks[i, row : row + 4, column : column + 4] = True
        text = f"reach the {list(COLOURS)[named]} cube"
        raws.append({"image": image, "proprio": np.zeros(2, np.float32), "instruction": text})
    return raws, masks


def test_maps_and_answers_find_the_named_square() -> None:
    torch.manual_seed(0)
    policy = ActionTokenPolicy(
        hidden_size=32,
        layers=1,
        heads=2,
        intermediate_size=48,
        bins=16,
        visual_tokens=2,
        chunk=1,
        action_dims=2,
        proprio_dims=2,
    )
    raws, masks = scenes(640, seed=0)
    cells = (torch.arange(16) - 7.5) / 8
    share = masks.float() / masks.float().sum((1, 2), keepdim=True)
    place = torch.stack([(share.sum(1) * cells).sum(1), (share.sum(2) * cells).sum(1)], dim=1)  # [n, 2] x, y
    columns = {f"obs.{name}": column for name, column in policy.collate([policy.encode(raw) for raw in raws]).items()}
    action = torch.stack([policy.encode_demonstration(raw, p[None]) for raw, p in zip(raws, place)])
    data = Batch(
        action=action,
        action_mask=torch.ones_like(action, dtype=torch.bool),
        temperature=torch.ones(640),
        target_mask=masks[:, None],
        **columns,
    )
    look, point = MapCrossEntropy(maps=2), SmoothedNegativeLogLikelihood(width=1.0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for step in range(80):
        batch = data.select(torch.arange(512)[step % 8 :: 8])
        out = policy(batch)
        optimizer.zero_grad()
        (look(out, batch).mean() + point(out, batch).mean()).backward()
        optimizer.step()
    with torch.no_grad():
        held_out = data.select(torch.arange(512, 640))
        out = policy(held_out)
        # where the first map looks most, in a 4x4 grid of 4-pixel cells: on the named square or not; blind is 1/3
        best = out.extra["map_logits"][:, 0].flatten(1).argmax(1)
        on = torch.nn.functional.adaptive_max_pool2d(held_out["target_mask"].float(), 4).flatten(1)
        assert on.gather(1, best[:, None]).mean() > 0.9
        # the transformer reads the place from the tokens: blind guessing errs by about half the image's half width
        guess = out.extra["choice_logprobs"].exp() @ ((2 * torch.arange(16) + 1) / 16 - 1)
        assert (guess - place[512:]).abs().mean() < 0.2
