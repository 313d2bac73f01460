"""Read TFRecord files and the messages `tf.train.Example` in them.

Source: tensorflow/core/lib/io/record_writer.h (framing: length uint64, its masked CRC32C uint32, the bytes, their
masked CRC32C uint32, little-endian) and tensorflow/core/example/feature.proto (fields and their numbers).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.extras import protobuf
from mmrl.files.foreign import open_foreign

_REMEDY = "copy the dataset again from its source"
_HEAD, _FOOT = 12, 4
_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8


def read_records(path: Path) -> Iterator[bytes]:
    """Read the records of a file, one at a time; the checksum of each length is compared, that of the bytes is not.

    Raises:
        ValueError: the file is cut or damaged; the message names it and the record.
    """
    with open_foreign(path, _REMEDY) as file:
        left, number = path.stat().st_size, 0
        while left:
            head = file.read(_HEAD)
            if len(head) < _HEAD:
                raise ValueError(f"{path}: record {number} is cut; {_REMEDY}")
            length, stated = struct.unpack("<QI", head)
            if _checksum(head[:8]) != stated:
                raise ValueError(f"{path}: record {number} is damaged, or this is no TFRecord file; {_REMEDY}")
            left -= _HEAD + length + _FOOT
            if left < 0:
                raise ValueError(f"{path}: record {number} is cut; {_REMEDY}")
            yield file.read(length)
            file.read(_FOOT)
            number += 1


def _checksum(content: bytes) -> int:
    """Masked CRC32C."""
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + _MASK) & 0xFFFFFFFF


def read_example(record: bytes, place: str) -> dict[str, np.ndarray | list[bytes]]:
    """The features of a record by name: float32 [N], int64 [N], or N byte strings.

    Args:
        record: a serialised `tf.train.Example`.
        place: file and number of the record, for messages.

    Raises:
        ValueError: it is none.
    """
    example = _example_class()()
    try:
        example.ParseFromString(record)
    except Exception as error:  # the class of the error depends on protobuf's implementation
        raise ValueError(f"{place}: no tf.train.Example ({error}); {_REMEDY}") from error
    features: dict[str, np.ndarray | list[bytes]] = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind == "float_list":
            features[name] = np.array(feature.float_list.value, np.float32)
        elif kind == "int64_list":
            features[name] = np.array(feature.int64_list.value, np.int64)
        else:
            features[name] = list(feature.bytes_list.value)
    return features


@cache
def _example_class() -> Any:
    """The message class of `tf.train.Example`, from a description of its fields."""
    pb = protobuf()
    file = pb.descriptor_pb2.FileDescriptorProto(name="mmrl_example.proto", package="mmrl_example", syntax="proto3")
    Field = pb.descriptor_pb2.FieldDescriptorProto
    optional, repeated = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
    for name, kind in (
        ("BytesList", Field.TYPE_BYTES),
        ("FloatList", Field.TYPE_FLOAT),
        ("Int64List", Field.TYPE_INT64),
    ):
        message = file.message_type.add(name=name)
        message.field.add(name="value", number=1, type=kind, label=repeated)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), 1):
        kind = ".mmrl_example." + "".join(word.capitalize() for word in name.split("_"))
        feature.field.add(
            name=name, number=number, type=Field.TYPE_MESSAGE, type_name=kind, label=optional, oneof_index=0
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=optional)
    entry.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, type_name=".mmrl_example.Feature", label=optional)
    features.field.add(
        name="feature", number=1, type=Field.TYPE_MESSAGE, type_name=".mmrl_example.Features.FeatureEntry",
        label=repeated,
    )  # fmt: skip
    example = file.message_type.add(name="Example")
    example.field.add(
        name="features", number=1, type=Field.TYPE_MESSAGE, type_name=".mmrl_example.Features", label=optional
    )
    pool = pb.descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pb.message_factory.GetMessageClass(pool.FindMessageTypeByName("mmrl_example.Example"))
