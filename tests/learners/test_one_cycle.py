import pytest
import torch

from mmrl.learners.one_cycle import OneCycle


def optimizer():
    return torch.optim.SGD([{"params": [torch.zeros(1)], "lr": lr} for lr in (1e-3, 2e-1)])


def rates(steps, **kwargs):
    """Of both groups at each step, over what they were given."""
    result = optimizer()
    scheduler = OneCycle(result, steps, **kwargs)
    out = []
    for step in range(steps):
        if step:
            result.step()
            scheduler.step()
        out.append([group["lr"] / lr for group, lr in zip(result.param_groups, (1e-3, 2e-1))])
    return torch.tensor(out)


def test_each_group_rises_to_its_own_rate_and_falls():
    """20 steps, a quarter of them rising: 0.1, 0.325, ... at step 4 = 0.25 * 20 - 1 the whole, then down to 1e-4."""
    seen = rates(20, warmup_fraction=0.25)
    assert torch.equal(seen[:, 0].round(decimals=6), seen[:, 1].round(decimals=6))
    torch.testing.assert_close(seen[:5, 0], torch.tensor([0.1, 0.325, 0.55, 0.775, 1.0]))
    falls = 1 - (1 - 1e-4) * torch.arange(16) / 15
    torch.testing.assert_close(seen[4:, 0], falls)


@pytest.mark.parametrize("bad", [{"warmup_fraction": 0}, {"start_factor": 2}, {"start_factor": 0.1, "end_factor": 0.5}])
def test_refusals(bad):
    with pytest.raises(ValueError, match=f"scheduler.{list(bad)[-1]} must be in"):
        OneCycle(optimizer(), 10, **bad)
