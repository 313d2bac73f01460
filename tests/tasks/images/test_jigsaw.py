import itertools
import re
import socket

import numpy as np
import pytest
from PIL import Image

from tasks.jigsaw import Jigsaw, JigsawBox, JigsawPair
from tasks.jigsaw.data import CONTRAST, PHOTOS, contrast, join_tiles, photo, puzzle, tiles
from tasks.jigsaw.rewards import arrangement
from tasks.jigsaw.verify import verify, verify_box, verify_choice
from tests.tasks.replies import reply


def test_photos_come_from_the_installed_package_without_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    photo.cache_clear()
    for name in PHOTOS:
        assert photo(name).ndim == 3 and photo(name).shape[2] == 3 and min(photo(name).shape[:2]) >= 300


@pytest.mark.parametrize("seed", [0, 1])
def test_no_pixel_is_in_crops_of_both_splits(seed):
    seen = {name: np.zeros((2, *photo(name).shape[:2]), bool) for name in PHOTOS}
    for row, split in enumerate(("train", "held_out")):
        task = Jigsaw(count=400, held_out_count=400, seed=seed, split=split)
        for index in range(400):
            crop = task[index].info
            top, left, side = crop["top"], crop["left"], crop["side"]
            assert top + side <= seen[crop["photo"]].shape[1] and left + side <= seen[crop["photo"]].shape[2]
            seen[crop["photo"]][row, top : top + side, left : left + side] = True
    assert sum(train.any() and held_out.any() for train, held_out in seen.values()) >= 4
    for name, (train, held_out) in seen.items():
        assert not (train & held_out).any(), name


def test_tiles_are_the_quarters_in_reading_order():
    # 4x4 image whose pixel at (row, column) is 4 row + column
    image = np.arange(16, dtype=np.uint8).reshape(4, 4, 1).repeat(3, axis=2)
    assert tiles(image)[..., 0].tolist() == [
        [[0, 1], [4, 5]],
        [[2, 3], [6, 7]],
        [[8, 9], [12, 13]],
        [[10, 11], [14, 15]],
    ]
    np.testing.assert_array_equal(join_tiles(tiles(image)), image)


def test_contrast_is_that_of_the_most_similar_tiles():
    flat = np.stack([np.full((2, 2, 3), level, np.uint8) for level in (0, 250, 100, 93)])
    assert contrast(flat) == 7.0
    # a chessboard of single pixels has the mean of its two levels in every quarter of every tile
    board = np.indices((8, 8)).sum(0)[..., None].repeat(3, axis=2) % 2 * 200
    assert contrast(tiles(board.astype(np.uint8))) == 0.0


def test_putting_the_tiles_where_the_answer_says_restores_the_crop():
    task = Jigsaw(size=48)
    for index in range(30):
        prompt = task[index]
        (image,) = prompt.images
        assert image.dtype == np.uint8 and image.shape == (48, 48, 3)
        restored = np.empty_like(tiles(image))
        for shown, place in zip(tiles(image), prompt.answer):
            restored[place - 1] = shown
        where = prompt.info
        square = photo(where["photo"])[where["top"] :, where["left"] :][: where["side"], : where["side"]]
        expected = np.asarray(Image.fromarray(square).resize((48, 48), Image.Resampling.LANCZOS))
        np.testing.assert_array_equal(join_tiles(restored), expected)
        assert contrast(restored) >= CONTRAST


def test_answers_are_spread_over_all_orders():
    answers = [Jigsaw()[i].answer for i in range(480)]
    counts = [answers.count(order) for order in itertools.permutations((1, 2, 3, 4))]
    assert sum(counts) == 480
    # chi-squared over 24 cells of 20 expected; 49.7 is the 99.9 % point with 23 degrees of freedom
    assert sum((count - 20) ** 2 / 20 for count in counts) < 49.7


def test_problems_repeat_with_the_seed_and_demonstrations_are_right():
    task = Jigsaw(count=50)
    for index in range(50):
        np.testing.assert_array_equal(task[index].images[0], Jigsaw(count=50)[index].images[0])
        assert task.score(reply(task[index], task.demonstrate(index))) == {"exact": 1.0, "tiles": 1.0, "format": 1.0}
    assert any(task[i].info != Jigsaw(seed=1)[i].info for i in range(50))


@pytest.mark.parametrize(
    ("text", "exact", "right", "well_formed"),
    [
        ("2 4 1 3", 1, 1.0, 1),
        ("The sky is up.\n2 4 1 3\n", 1, 1.0, 1),
        ("2 4 3 1", 0, 0.5, 1),
        ("1 2 3 4", 0, 0.0, 1),
        ("4 2 1 3", 0, 0.5, 1),
        ("2 2 2 2", 0, 0.0, 0),
        ("2413", 0, 0.0, 0),
        ("2, 4, 1, 3", 0, 0.0, 0),
        ("2 4 1 3 2", 0, 0.0, 0),
        ("2 4 1 5", 0, 0.0, 0),
        ("", 0, 0.0, 0),
    ],
)
def test_verify(text, exact, right, well_formed):
    assert verify(text, (2, 4, 1, 3)) == {"exact": exact, "tiles": right, "format": well_formed}


def test_refusals_name_the_task():
    with pytest.raises(IndexError, match=r"'jigsaw' \(held_out\) has 512 problems, asked for index 512"):
        Jigsaw(split="held_out")[512]
    with pytest.raises(ValueError, match="'jigsaw' has the splits"):
        Jigsaw().on("test")
    with pytest.raises(ValueError, match=r"between 0\.2 and 0\.8"):
        Jigsaw(held_out_fraction=0.1)
    with pytest.raises(ValueError, match="multiple of 4 pixels"):
        Jigsaw(size=33)
    with pytest.raises(ValueError, match=r"'jigsaw': size must be a multiple of 12 pixels, at least 8, for 3 x 2"):
        Jigsaw(rows=3)
    with pytest.raises(ValueError, match="at least 2 tiles"):
        Jigsaw(rows=1, columns=1)


@pytest.mark.parametrize(("rows", "columns", "size"), [(2, 1, 32), (1, 3, 36), (3, 2, 36), (3, 3, 36), (4, 4, 64)])
def test_other_grids_are_cut_shuffled_and_put_together(rows, columns, size):
    task = Jigsaw(rows=rows, columns=columns, size=size)
    for index in range(8):
        prompt = task[index]
        shown = tiles(prompt.images[0], rows, columns)
        restored = np.empty_like(shown)
        restored[np.array(prompt.answer) - 1] = shown
        where = prompt.info
        square = photo(where["photo"])[where["top"] :, where["left"] :][: where["side"], : where["side"]]
        expected = np.asarray(Image.fromarray(square).resize((size, size), Image.Resampling.LANCZOS))
        np.testing.assert_array_equal(join_tiles(restored, rows, columns), expected)
        assert task.score(reply(prompt, task.demonstrate(index)))["exact"] == 1


def test_a_border_hides_the_seams_alone():
    bare, framed = Jigsaw()[0].images[0], Jigsaw(border=0.125)[0].images[0]
    inside = np.zeros((32, 32), bool)
    for top, left in itertools.product((2, 18), repeat=2):
        inside[top : top + 12, left : left + 12] = True
    np.testing.assert_array_equal(framed[inside], bare[inside])
    assert not framed[~inside].any()


def test_half_of_the_places_are_half_of_the_tiles():
    assert verify("1 3 2 4", (1, 2, 3, 4))["tiles"] == 0.5
    assert verify("1 2 3", (1, 2, 3, 4))["tiles"] == 0
    twelve = tuple(range(12, 0, -1))
    assert verify(" ".join(map(str, twelve)), twelve)["exact"] == 1


def test_the_relation_of_a_pair_is_that_of_the_places():
    task = JigsawPair(rows=3, columns=3, size=36)
    words = dict(zip("ABCDEFGH", task.choices))
    for index in range(40):
        prompt, (_, places) = task[index], puzzle(36, 0.25, 0, "train", index, 3, 3)
        text = prompt.messages[0]["content"][1]["text"]
        a, b = (int(n) - 1 for n in re.findall(r"tile (\d)", text))
        (row, column), (other_row, other_column) = divmod(places[a], 3), divmod(places[b], 3)
        word = words[prompt.answer]
        assert ("above" in word, "below" in word) == (row < other_row, row > other_row)
        assert ("left" in word, "right" in word) == (column < other_column, column > other_column)
    assert JigsawPair(rows=2, columns=1).choices == ("above", "below")
    assert len(JigsawPair().choices) == 8


@pytest.mark.parametrize(
    ("text", "exact", "well_formed"),
    [
        ("B", 1, 1),
        ("below\nB", 1, 1),
        ("A", 0, 1),
        ("C", 0, 0),
        ("b", 0, 0),
        ("A B", 0, 0),
        ("", 0, 0),
        ("\uff22", 0, 0),
    ],
)
def test_verify_choice(text, exact, well_formed):
    assert verify_choice(text, "B", 2) == {"exact": exact, "format": well_formed}


def test_the_box_holds_the_piece():
    task = JigsawBox(rows=2, columns=4, size=32)
    for index in range(20):
        prompt = task[index]
        x1, y1, x2, y2 = prompt.answer
        assert (x2 - x1, y2 - y1) == (8, 16)
        whole, piece = prompt.images
        np.testing.assert_array_equal(piece[::2, ::4], whole[y1:y2, x1:x2])


@pytest.mark.parametrize(
    ("text", "exact", "overlap", "well_formed"),
    [
        ("4 0 20 16", 1, 1, 1),
        ("4 0 20 8", 1, 0.5, 1),
        ("12 0 28 16", 0, 128 / 384, 1),
        ("0 0 32 32", 0, 0.25, 1),  # the whole photo
        ("20 16 4 0", 0, 0, 0),
        ("4 0 99 99", 0, 0, 0),
        ("4 0 20 16 4 0 20 16", 0, 0, 0),
        ("-4 0 20 16", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_verify_box(text, exact, overlap, well_formed):
    assert verify_box(text, (4, 0, 20, 16), 32) == {"exact": exact, "iou": overlap, "format": well_formed}


@pytest.mark.parametrize(
    ("scores", "value"),
    [
        ({"exact": 0.0, "tiles": 0.5, "format": 1.0}, 0.5),  # [1, 3, 2, 4] for [1, 2, 3, 4]
        ({"exact": 1.0, "iou": 0.6, "format": 1.0}, 0.6),
        ({"exact": 1.0, "format": 1.0}, 1.0),
        ({"exact": 0.0, "tiles": 0.0, "format": 0.0}, 0.0),
    ],
)
def test_the_reward_of_every_format_is_its_accuracy(scores, value):
    scores.pop("format")
    assert arrangement(**scores) == value
