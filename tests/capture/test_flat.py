"""An optimiser of one vector learns as an optimiser of its parts does."""

import torch
from torch import nn
from torch.testing import assert_close

from mmrl.capture.flat import FlatParameters


def test_a_vector_of_parameters_learns_as_its_parts_do():
    torch.manual_seed(0)
    one, other = (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2))
    other.load_state_dict(one.state_dict())
    flat = FlatParameters(list(one.parameters()))
    ours, plain = torch.optim.AdamW([flat.vector], lr=0.1), torch.optim.AdamW(other.parameters(), lr=0.1)
    one.zero_grad()  # drops the gradients, as Lightning does at the start
    flat.tie()
    for _ in range(3):
        x = torch.randn(5, 3)
        plain.zero_grad()
        flat.vector.grad.copy_(flat.gradient(one(x).square().mean()))
        other(x).square().mean().backward()
        flat.clip(0.1)
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        ours.step()
        plain.step()
        assert_close(one.state_dict(), other.state_dict(), atol=1e-6, rtol=1e-5)
