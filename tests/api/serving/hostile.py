"""Messages that no client of a policy server sends, by name: each must be answered by an error."""

from __future__ import annotations

import msgpack
import numpy as np

from mmrl.policies.remote.wire import SAMPLING, SEED, pack
from tests.api.serving.served import observation

GOOD = observation()
IMAGE = {b"__ndarray__": True, b"data": bytes(64 * 64 * 3), b"dtype": "|u1", b"shape": [64, 64, 3]}


def _with(**changes):
    """A good request with some entries replaced."""
    return pack({**GOOD, **changes})


def _image(**changes):
    """A good request whose image's map has some entries replaced."""
    entries = {**IMAGE, **{name.encode(): value for name, value in changes.items()}}
    return msgpack.packb({"image": entries, "instruction": "x"})


def _build():
    good = pack(GOOD)
    yield "empty", b""
    yield "empty text", ""
    yield "text", "hello"
    yield "json", '{"image": []}'
    for cut in (1, 2, 5, 9, 17, 30, 100, 1000, 5000, 12000, len(good) - 1):
        yield f"truncated at {cut}", good[:cut]
    for extra in (b"\x00", b"\xc0", good):
        yield f"followed by {len(extra)} bytes", good + extra
    rng = np.random.default_rng(0)
    for number in range(12):
        yield f"random {number}", rng.bytes(int(rng.integers(1, 300)))
    for name, message in {
        "never used": b"\xc1",
        "map of 2**32": b"\xdf\xff\xff\xff\xff",
        "array of 2**32": b"\xdd\xff\xff\xff\xff",
        "bytes of 2**32": b"\xc6\xff\xff\xff\xffx",
        "text of 2**32": b"\xdb\xff\xff\xff\xffx",
        "extension of 2**32": b"\xc9\xff\xff\xff\xff\x05x",
        "lists of depth 100000": b"\x91" * 100_000 + b"\xc0",
        "maps of depth 100000": b"\x81\xa1a" * 100_000 + b"\xc0",
        "lists of depth 500": b"\x81\xa1a" + b"\x91" * 500 + b"\xc0",
        "no UTF-8": b"\x81\xa2\xff\xfe\xc0",
        "null": b"\xc0",
        "number": b"\x07",
        "list": msgpack.packb([1, 2, 3]),
        "map with numbers as keys": msgpack.packb({1: 2}),
        "map with bytes as keys": msgpack.packb({b"image": 2}),
        "empty map": msgpack.packb({}),
        "an array alone": pack(np.zeros(3)),
        "extension": msgpack.packb({"image": msgpack.ExtType(5, b"x")}),
        "timestamp": msgpack.packb({**{"instruction": "x"}, "image": msgpack.Timestamp(1, 0)}),
        "bytes": msgpack.packb({"image": b"x", "proprio": b"y", "instruction": b"z"}),
        "pickle": b"cos\nsystem\n(S'true'\ntR.",
    }.items():
        yield name, message
    for shape in ([2**31, 2**31, 3], [2**62], [-1, 64, 3], [64, 64], [64, 64, 4], [], [0], None, "64", 7, [64.0, 64, 3],
                  [[64], 64, 3], [1] * 100, [True, 12288], [2**64 - 1]):  # fmt: skip
        yield f"shape {str(shape)[:30]}", _image(shape=shape)
    for dtype in ("|O", "|V1", "|S1", "<U1", "<c8", "<M8[s]", "u1,u1", "<f4", "float", "", None, 3, "|u1" * 50):
        yield f"dtype {str(dtype)[:20]}", _image(dtype=dtype)
    for data in (b"", b"x", None, "text", 5, [0] * 9, {"a": 1}):
        yield f"data {str(data)[:20]}", _image(data=data)
    for name, value in {
        "float": np.zeros((64, 64, 3), np.float32),
        "int64": np.zeros((64, 64, 3), np.int64),
        "grey": np.zeros((64, 64), np.uint8),
        "four channels": np.zeros((64, 64, 4), np.uint8),
        "four axes": np.zeros((1, 64, 64, 3), np.uint8),
        "no pixels": np.zeros((0, 0, 3), np.uint8),
        "one pixel": np.zeros((1, 1, 3), np.uint8),
        "number": 5,
        "text": "x",
        "null": None,
        "list": [[1, 2], [3]],
        "map": {"a": 1},
    }.items():
        yield f"image is {name}", _with(image=value)
    for name, value in {
        "short": np.zeros(4, np.float32),
        "matrix": np.zeros((5, 5), np.float32),
        "scalar": np.float32(1),
        "text": "abc",
        "null": None,
        "nested": [[[[[1]]]]],
        "ragged": [[1], [2, 3]],
        "map": {"x": 1},
    }.items():
        yield f"proprio is {name}", _with(proprio=value)
    yield "wrong names", pack({f"observation/{name}": value for name, value in GOOD.items()})
    for name in GOOD:
        yield f"without {name}", pack({key: value for key, value in GOOD.items() if key != name})
    for seed in (-1, 2**63 * 1.0, "1", True, [1], {"a": 1}):
        yield f"seed {str(seed)[:10]}", pack({**GOOD, SEED: seed})
    for number, sampling in enumerate(
        [5, "argmax", [1], {"decode": "x"}, {"decode": 1}, {"temperature": 0}, {"temperature": -1.0}, {"top_p": 2},
         {"temperature": "1"}, {"temperature": float("nan")}, {"temperature": float("inf")}, {"unknown": 1},
         {"stop": "a"}, {"stop": [1]}, {"top_k": -1}, {"max_tokens": 0}, {"top_k": 1.5}, {"max_tokens": True}]
    ):  # fmt: skip
        yield f"sampling {number}", pack({**GOOD, SAMPLING: sampling})


MESSAGES = dict(_build())
