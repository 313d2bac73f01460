"""An output that is taken apart and put together again is the same."""

import torch

from mmrl.capture.flat_output import flatten_output, unflatten_output
from mmrl.core.batch import add_prefix, strip_prefix
from mmrl.core.types import PolicyOutput


def output(*others):
    part = torch.randn(2, 3)
    extra = {"q": torch.randn(2), "a.b": torch.randn(1)}
    return PolicyOutput(part, part + 1, None if others else torch.randn(2), extra, dict(others))


def test_there_and_back():
    whole = output(("blind", output()), ("critic", output(("deeper", output()))))
    parts = add_prefix("out", flatten_output(whole)) | {"gradient": torch.zeros(1)}
    back = flatten_output(unflatten_output(strip_prefix("out", parts)))
    assert list(back) == list(flatten_output(whole)) and len(back) == 4 * 4 + 2
    assert all(back[name] is not None and torch.equal(back[name], part) for name, part in flatten_output(whole).items())
