"""Messages over a pipe: the length in eight bytes, then the message."""

from __future__ import annotations

import os
import struct


def write_message(end: int, message: bytes) -> None:
    """Write a whole message. Raises OSError if the reader has gone."""
    rest = memoryview(struct.pack("<Q", len(message)) + message)
    while rest:
        rest = rest[os.write(end, rest) :]


def read_message(end: int) -> bytes:
    """Read a whole message. Raises EOFError if the other end has gone."""
    (length,) = struct.unpack("<Q", _read(end, 8))
    return _read(end, length)


def _read(end: int, length: int) -> bytes:
    read = bytearray()
    while len(read) < length:
        piece = os.read(end, min(length - len(read), 1 << 20))
        if not piece:
            raise EOFError("the other end of a pipe is gone")
        read += piece
    return bytes(read)
