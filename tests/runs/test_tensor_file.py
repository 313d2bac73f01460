"""Tensors written one after the other are a safetensors file, and are not copied as a whole."""

import io
import json

import pytest
import safetensors.torch
import torch

from mmrl.runs.tensor_file import DTYPES, write_tensors

MIXED = {
    "b": torch.arange(6.0).reshape(2, 3),
    "a": torch.tensor(3),
    "c": torch.tensor([True, False, True]),
    "half": torch.arange(5).to(torch.bfloat16),
    "nothing": torch.zeros(0, 4),
    "ünicode": torch.arange(3, dtype=torch.int16),
}


def written(tensors, metadata=None):
    file = io.BytesIO()
    write_tensors(file, tensors, metadata or {})
    return file.getvalue()


def split(content):
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


@pytest.mark.parametrize("metadata", [{}, {"second": "first"}], ids=["plain", "aliases"])
def test_the_file_is_that_of_safetensors(metadata):
    result, expected = written(MIXED, metadata), safetensors.torch.save(MIXED, metadata or None)
    assert split(result) == split(expected)
    read = safetensors.torch.load(result)
    assert read.keys() == MIXED.keys() and all(torch.equal(read[name], MIXED[name]) for name in MIXED)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPES.values())
def test_every_dtype_is_read_back(dtype):
    tensor = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    read = safetensors.torch.load(written({"x": tensor}))["x"]
    assert read.dtype == dtype and torch.equal(read.view(torch.uint8), tensor.view(torch.uint8))


def test_views_and_tensors_that_share_memory_are_written_by_their_values():
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"base": base, "turned": base.T, "part": base[1:, ::2], "conj": torch.nn.Parameter(base)}
    read = safetensors.torch.load(written(tensors))
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)


def test_at_most_one_tensor_is_in_memory_beside_those_that_are_written():
    sizes = []

    class Measured:
        def write(self, data):
            sizes.append(memoryview(data).nbytes)

    tensors = {str(i): torch.zeros(1000) for i in range(8)}
    write_tensors(Measured(), tensors, {})
    assert sizes[1:] == [4000] * 8
