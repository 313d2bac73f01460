import numpy as np
import pytest

pytest.importorskip("msgpack")
import msgpack

from mmrl.policies.remote.wire import WireError, pack, unpack


def test_arrays_and_plain_values_come_back_as_they_were_sent():
    sent = {
        "image": np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3),
        "big_endian": np.array([1.5, -2], dtype=">f4"),
        "empty": np.zeros((0, 7), np.float32),
        "scalar": np.float32(0.25),
        "flag": np.bool_(True),
        "column": np.arange(6.0).reshape(2, 3)[:, 1],
        "prompt": "größer",
        "nested": {"list": [1, 2.5, None, True]},
    }
    back = unpack(pack(sent))
    assert set(back) == set(sent) and back["prompt"] == "größer" and back["nested"] == sent["nested"]
    for name in ("image", "big_endian", "empty", "column"):
        assert np.array_equal(back[name], sent[name]) and back[name].flags.writeable, name
    assert back["big_endian"].dtype == np.float32 and back["scalar"] == np.float32(0.25)
    assert type(back["scalar"]) is np.float32 and type(back["flag"]) is np.bool_


def test_an_array_has_the_keys_of_openpi():
    plain = msgpack.unpackb(pack(np.zeros((2, 3), np.float32)))
    assert plain == {b"__ndarray__": True, b"data": bytes(24), b"dtype": "<f4", b"shape": [2, 3]}
    assert msgpack.unpackb(pack(np.float32(2))) == {b"__npgeneric__": True, b"data": 2.0, b"dtype": "<f4"}


@pytest.mark.parametrize(
    "value",
    [np.array([{}], object), np.array(["a"]), np.array([1j]), np.zeros(1, [("a", int)]), object(), {1, 2}],
    ids=lambda value: str(getattr(value, "dtype", type(value))),
)
def test_other_values_are_not_sent(value):
    with pytest.raises(TypeError, match="cannot be sent"):
        pack({"x": value})


def array(data=bytes(24), dtype="<f4", shape=(2, 3), **more):
    entries = {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape, **more}
    return msgpack.packb({"x": entries})


@pytest.mark.parametrize(
    "message",
    [
        array(shape=(2, 4)),
        array(shape=(2**40, 2**40)),
        array(shape=(-1, -6)),
        array(shape=(2.0, 3.0)),
        array(shape=[1] * 40),
        array(shape=None),
        array(shape=(True, 6)),
        array(shape=(0, 2**70 - 2**69 - 1 >> 8), data=b"x"),
        array(dtype="|O"),
        array(dtype="|V24"),
        array(dtype="<U6"),
        array(dtype="<c8"),
        array(dtype="<M8[s]"),
        array(dtype="f4,f4"),
        array(dtype=7),
        array(data="text"),
        array(data=None),
        msgpack.packb({b"__ndarray__": True}),
        msgpack.packb({b"__npgeneric__": True, b"data": "a", b"dtype": "<f4"}),
        msgpack.packb({b"__npgeneric__": True, b"data": 2**40, b"dtype": "|i1"}),
        msgpack.packb(msgpack.ExtType(5, b"x")),
        b"\x91" * 100_000 + b"\x00",
        b"\x81\xa1a" * 50_000 + b"\x00",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xffx",
        b"\xa2\xff\xfe",
        b"\x81\xc0\xc0",
        b"\xc1",
        b"\x01\x01",
        b"",
    ],
    ids=range(31),
)
def test_malformed_messages_are_refused(message):
    with pytest.raises(WireError):
        unpack(message)
