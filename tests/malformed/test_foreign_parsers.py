"""Files that hold, crash or fill the parsers of other libraries: each is refused with its name, within limits."""

import io
import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmrl.config.yaml_files import check_yaml
from mmrl.core.errors import ConfigError, is_user_error
from mmrl.files.foreign import check_stated
from mmrl.media.videos import check_video
from mmrl.policies.weights import check_folder, read_weights
from tasks.dataset.tables import JsonLines, open_table
from tasks.images import image_size, load_image, verify_image

PIXELS = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)


def draw_damaged(content: bytes, count: int = 24):
    """Yield cut and changed copies of a file."""
    draw = random.Random(0)
    for number in range(count):
        damaged = bytearray(content)
        for _ in range(draw.choice((1, 3, 9))):
            damaged[draw.randrange(len(damaged))] = draw.choice((0, 127, 128, 255, draw.randrange(256)))
        yield bytes(damaged[: draw.randrange(len(damaged))] if number % 3 == 0 else damaged)
    yield from (b"", content[:8], content * 2)


def encode(form: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, form)
    return file.getvalue()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "AVIF", "ICO", "QOI", "JPEG2000"])
def test_damaged_images_are_read_or_refused(form):
    refused = 0
    for content in draw_damaged(encode(form)):
        try:
            image_size(content, "rows.jsonl:1")
            verify_image(content, "rows.jsonl:1")
            load_image(content, "rows.jsonl:1", 10_000)
        except ValueError as error:
            refused += 1
            assert str(error).startswith("rows.jsonl:1: the image of") and is_user_error(error)
    assert refused >= 3


@pytest.mark.parametrize("form", ["EPS", "PDF", "ICNS", "DDS", "SGI", "IM", "SPIDER"])
def test_formats_that_start_programs_or_are_rare_are_not_decoded(form):
    with pytest.raises(ValueError, match=r"rows\.jsonl:1.*cannot be read as an image .*replace the file"):
        load_image(encode(form), "rows.jsonl:1")


def test_a_comment_of_an_image_that_is_a_bomb_is_refused():
    import zlib

    name, body = b"zTXt", b"a\0\0" + zlib.compress(bytes(2 * 10**7))
    chunk = struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    content = encode("PNG")
    with pytest.raises(ValueError, match="cannot be read as an image"):
        load_image(content[:33] + chunk + content[33:], "rows.jsonl:1")


@pytest.mark.parametrize(
    "content",
    [
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
        b"<?xml version='1.0'?><MPD></MPD>",
        b"[playlist]\nFile1=/etc/passwd\n",
        b"",
        b"\x89PNG\r\n\x1a\n",
    ],
    ids=str,
)
def test_lists_of_other_files_are_no_videos(content, tmp_path):
    file = tmp_path / "x.mp4"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.mp4: not a readable video.*replace it"):
        check_video(file, "replace it")


@pytest.mark.parametrize("content", ["[" * 1200, "- " * 1200, "? " * 1200, "{" * 1200, "model: " + "[" * 1200])
def test_deep_yaml_is_refused(content, tmp_path):
    (tmp_path / "x.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"x\.yaml: its values are nested too deeply"):
        check_yaml(tmp_path / "x.yaml")


def test_a_line_of_gigabytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.dataset.tables._LONGEST_LINE", 1000)
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a": "' + "x" * 1000 + '"}\n')
    with pytest.raises(ValueError, match=r"x\.jsonl:2: a line of more than 1,000 bytes; write"):
        JsonLines(tmp_path / "x.jsonl")


def entry(**changes):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


HEADERS = {
    "offsets of texts": {"a": entry(data_offsets=["0", "8"])},
    "offsets of booleans": {"a": entry(data_offsets=[False, True])},
    "offsets below zero": {"a": entry(data_offsets=[-8, 0])},
    "offsets that go back": {"a": entry(data_offsets=[8, 0])},
    "offsets of floats": {"a": entry(data_offsets=[0.0, 8.0])},
    "a hole": {"a": entry(data_offsets=[4, 8], shape=[1])},
    "two weights at one place": {"a": entry(), "b": entry()},
    "a shape beyond 64 bits": {"a": entry(shape=[2**62, 4])},
    "a product beyond 64 bits": {"a": entry(shape=[2**33, 2**33])},
    "another dtype": {"a": entry(dtype="X9")},
    "no dtype": {"a": {"shape": [2], "data_offsets": [0, 8]}},
    "another entry": {"a": 3},
    "a list": [1],
    "metadata of a number": {"__metadata__": 3, "a": entry()},
    "a larger weight": {"a": entry(data_offsets=[0, 80], shape=[20])},
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_safetensors_are_refused(name, tmp_path):
    import json

    header = json.dumps(HEADERS[name]).encode()
    (tmp_path / "config.json").write_text("{}")
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(ValueError, match=r"model\.safetensors.*(copy it|copy the folder)"):
        check_folder(tmp_path)
        read_weights(file, "copy it")


def test_parts_that_state_more_than_they_hold():
    check_stated(2**28, 0, "x", "copy it")
    check_stated(10**9, 10**6, "x", "copy it")
    with pytest.raises(ValueError, match=r"x: states 268,435,457 bytes and holds 3; copy it"):
        check_stated(2**28 + 1, 3, "x", "copy it")


@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_damaged_parquet_is_read_or_refused(compression, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    from mmrl.datasets.lerobot.table import read_table
    from tasks.dataset.source import find_source

    file = tmp_path / "x.parquet"
    texts = [f"{number}?" * 5 for number in range(40)]
    parquet.write_table(pa.table({"q": texts, "n": list(range(40))}), file, compression=compression, row_group_size=16)
    refused = 0
    for content in draw_damaged(file.read_bytes(), 30):
        file.write_bytes(content)
        for read in (
            lambda: read_table(file).to_pylist(),
            lambda: list(open_table(find_source(str(file), None, None, "task.path")).records()),
        ):
            try:
                read()
            except ValueError as error:
                refused += 1
                assert "x.parquet" in str(error) and is_user_error(error)
    assert refused > 10


h5py = pytest.importorskip("h5py")


def demonstrations(file) -> None:
    group = file.create_group("data/demo_0")
    group["actions"], group["rewards"] = np.random.default_rng(0).random((10, 7)), np.ones(10)
    group["obs/state"] = np.ones((10, 5))


def other_file(file):
    with h5py.File(Path(file.filename).with_name("other.hdf5"), "w") as other:
        demonstrations(other)


def external(place):
    def change(file):
        other_file(file)
        if place in file:
            del file[place]
        file[place] = h5py.ExternalLink("other.hdf5", "/data/demo_0")

    return change


def virtual(file):
    other_file(file)
    layout = h5py.VirtualLayout(shape=(10, 5), dtype="f8")
    layout[:] = h5py.VirtualSource("other.hdf5", "data/demo_0/obs/state", shape=(10, 5))
    file["data/demo_0/obs"].create_virtual_dataset("v", layout)


def create(name, **options):
    def change(file):
        if name in file["data/demo_0"]:
            del file["data/demo_0"][name]
        file["data/demo_0"].create_dataset(name, **options)

    return change


def link(name, target):
    return lambda file: file.__setitem__(name, target(file))


HDF5 = {
    "a demonstration in another file": (external("data/demo_1"), "is a link to 'other"),
    "rewards in another file": (external("data/demo_0/rewards"), "is a link to 'other"),
    "splits in another file": (external("mask"), "is a link to 'other"),
    "a link to a link to another file": (
        lambda file: (external("x")(file), file.__setitem__("data/demo_1", h5py.SoftLink("/x/obs"))),
        "is a link to",
    ),
    "a virtual array": (virtual, "in another file"),
    "numbers of a system file": (
        create("obs/e", shape=(10, 4), dtype="u1", external=[("/etc/passwd", 0, 40)]),
        "in another file",
    ),
    "numbers of a device": (
        create("obs/e", shape=(10, 4), dtype="u1", external=[("/dev/zero", 0, 40)]),
        "in another file",
    ),
    "a group within itself": (link("data/demo_0/obs/loop", lambda file: file["data/demo_0/obs"]), "within itself"),
    "a link to its own group": (
        link("data/demo_0/obs/loop", lambda file: h5py.SoftLink("/data/demo_0")),
        "within itself",
    ),
    "groups 300 deep": (lambda file: file.create_group("data/demo_0/obs/" + "a/" * 300), "too deep"),
    "actions of 28 gigabytes": (
        create("actions", shape=(10**9, 7), chunks=(1000, 7), dtype="f4"),
        "states 28,000,000,000 bytes",
    ),
    "an image of 10 gigapixels": (
        create("obs/image", shape=(10, 60000, 60000, 3), chunks=(1, 100, 100, 3), dtype="u1"),
        "states 108,000,000,000 bytes",
    ),
    "zeros that are compressed": (
        create("obs/zeros", data=np.zeros((10, 2 * 10**6), "u1"), compression="gzip"),
        "2,000,000 numbers in a control step",
    ),
    "wide actions": (create("actions", data=np.zeros((2, 2 * 10**6), "u1"), compression="gzip"), "2,000,000 numbers"),
}


@pytest.mark.parametrize("name", HDF5)
def test_hdf5_files_that_lead_elsewhere_or_state_too_much(name, tmp_path):
    from mmrl.datasets.robomimic import RobomimicDataset

    change, expected = HDF5[name]
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        demonstrations(file)
        change(file)
    started = time.monotonic()
    with pytest.raises(ValueError, match=rf"x\.hdf5.*{expected}.*copy"):
        RobomimicDataset(tmp_path / "x.hdf5").read(0)
    assert time.monotonic() - started < 20


def test_damaged_hdf5_files_are_read_or_refused(tmp_path):
    from mmrl.datasets.robomimic import RobomimicDataset

    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        demonstrations(file)
        file["data/demo_0/obs"].create_dataset("image", data=np.tile(PIXELS, (10, 1, 1, 1)), compression="gzip")
    refused = 0
    for content in draw_damaged(path.read_bytes(), 6):
        path.write_bytes(content)
        try:
            np.asarray(RobomimicDataset(path).read(0).observations["image"])
        except (ValueError, KeyError) as error:
            refused += 1
            assert isinstance(error, KeyError) or ("x.hdf5" in str(error) and is_user_error(error))
    assert refused >= 3
