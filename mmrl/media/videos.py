"""Check that a file of other people is a video, before ffmpeg opens it."""

from __future__ import annotations

import re
from pathlib import Path

from mmrl.files.foreign import check_regular

_VIDEOS = re.compile(
    rb"....(ftyp|moov|mdat|free|wide|skip|pnot)|\x1aE\xdf\xa3|RIFF....AVI |OggS|GIF8|FLV|G|\x00\x00\x01[\xb0-\xbf]|"
    rb"0&\xb2u|\.RMF|YUV4MPEG2",
    re.DOTALL,
)
"""First bytes of MP4, Matroska, AVI, Ogg, GIF, FLV, MPEG, ASF, RealMedia and Y4M."""


def check_video(path: Path | str, remedy: str) -> None:
    """Refuse a file that is no video by its first bytes: ffmpeg follows playlists and lists to other files.

    Args:
        path: of the file.
        remedy: end of the message.
    """
    check_regular(path, remedy)
    with open(path, "rb") as file:
        if not _VIDEOS.match(file.read(16)):
            raise ValueError(f"{path}: not a readable video (its first bytes are of no known format); {remedy}")
