"""An output that is taken apart and put together again is the same."""

import torch

from mmrl.learners.parts import output_of, parts_of
from mmrl.named import named, under
from mmrl.types import PolicyOutput


def output(*others):
    part = torch.randn(2, 3)
    extra = {"q": torch.randn(2), "a.b": torch.randn(1)}
    return PolicyOutput(part, part + 1, None if others else torch.randn(2), extra, dict(others))


def test_there_and_back():
    whole = output(("blind", output()), ("critic", output(("deeper", output()))))
    parts = named("out", parts_of(whole)) | {"gradient": torch.zeros(1)}
    back = parts_of(output_of(under("out", parts)))
    assert list(back) == list(parts_of(whole)) and len(back) == 4 * 4 + 2
    assert all(back[name] is not None and torch.equal(back[name], part) for name, part in parts_of(whole).items())
