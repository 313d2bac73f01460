"""What is replayed is what would have been computed, bit for bit, or it is not replayed."""

import logging

import torch
from torch import nn

from mmrl.capture.graph import MIN_CALLS, CapturedGraph


def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def gradients(net, calls):
    """A computation with a gradient inside that counts how often its Python runs."""

    def compute(columns):
        calls.append(len(columns["x"]))
        loss = torch.where(columns["action_mask"], net(columns["x"]), 0).square().mean()
        result = torch.autograd.grad(loss, list(net.parameters()))
        return {"loss": loss.detach(), "gradient": torch.cat([part.flatten() for part in result])}

    return compute


def columns(rows=4):
    return {"x": torch.randn(rows, 3), "action_mask": torch.rand(rows, 1) > 0.3}


def test_replays_follow_inputs_and_parameters_to_the_bit():
    net, calls = build(), []
    captured, compute = CapturedGraph("it"), gradients(net, calls)
    for _ in range(MIN_CALLS + 40):
        given = columns()
        result, expected = captured(compute, given), gradients(net, [])(given)
        assert result.keys() == expected.keys()
        assert all(torch.equal(result[name], part) for name, part in expected.items())
        with torch.no_grad():  # as an optimiser does
            for parameter in net.parameters():
                parameter.add_(0.01 * torch.randn_like(parameter))
    # every call before, one more to record, and none of the rest
    assert len(calls) == MIN_CALLS + 2
    captured.revalidate()
    captured(compute, columns())
    captured(compute, columns())
    assert len(calls) == MIN_CALLS + 3


def test_other_sizes_and_other_keys_are_recorded_on_their_own():
    net, calls = build(), []
    captured, compute = CapturedGraph("it"), gradients(net, calls)
    for _ in range(MIN_CALLS + 10):
        captured(compute, columns())
    del calls[:]
    captured(compute, columns(rows=5))
    captured(compute, columns(), key="other")
    captured(compute, columns())
    assert calls == [5, 4]


def test_what_hangs_on_values_or_draws_is_not_replayed(caplog):
    def branches(columns):
        return {"y": columns["x"] if columns["x"].sum() > 0 else -columns["x"]}

    def draws(columns):
        return {"y": columns["x"] + torch.rand(())}

    for compute in (branches, draws):
        captured, calls = CapturedGraph("it"), []

        def counted(columns, compute=compute, calls=calls):
            calls.append(1)
            return compute(columns)

        with caplog.at_level(logging.INFO):
            for _ in range(MIN_CALLS + 10):
                captured(counted, {"x": torch.randn(3)})
        assert len(calls) >= MIN_CALLS + 10
        assert "it runs its own code" in caplog.text
        caplog.clear()


def test_attention_can_draw_and_is_replayed_where_it_does_not(caplog):
    for dropout, again in ((0.0, 0), (0.5, 5)):
        captured, calls = CapturedGraph("it"), []

        def attend(columns, dropout=dropout, calls=calls):
            calls.append(1)
            x = columns["x"]
            return {"y": nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropout)}

        with caplog.at_level(logging.INFO):
            for _ in range(MIN_CALLS + 2):
                captured(attend, {"x": torch.randn(1, 2, 3, 4)})
            del calls[:]
            for _ in range(5):
                captured(attend, {"x": torch.randn(1, 2, 3, 4)})
        assert len(calls) == again
    assert "it draws" in caplog.text


def test_python_that_changes_its_mind_is_found_out(caplog):
    factor = [1.0]
    captured = CapturedGraph("it")
    for _ in range(MIN_CALLS + 5):
        captured(lambda columns: {"y": factor[0] * columns["x"]}, {"x": torch.ones(2)})
    factor[0] = 3.0
    captured.revalidate()
    with caplog.at_level(logging.INFO):
        result = captured(lambda columns: {"y": factor[0] * columns["x"]}, {"x": torch.ones(2)})
    assert result["y"].tolist() == [3.0, 3.0] and "replayed numbers differ" in caplog.text
