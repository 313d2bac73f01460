import numpy as np
import pytest
from sklearn.datasets import load_digits

from tasks.digits import Digits
from tasks.digits.verify import verify
from tests.tasks.replies import reply


def scans(task: Digits) -> list[int]:
    return [task[i].info["scan"] for i in range(len(task))]


def test_splits_are_disjoint_and_cover_every_scan():
    seen, unseen = scans(Digits(seed=5)), scans(Digits(seed=5).on("held_out"))
    assert len(seen) + len(unseen) == 1797
    assert set(seen) | set(unseen) == set(range(1797))


def test_every_digit_gives_a_quarter_to_the_held_out_split():
    every = np.bincount(load_digits().target)
    stored = np.bincount([Digits().on("held_out")[i].answer for i in range(len(Digits().on("held_out")))])
    assert stored.tolist() == [round(0.25 * count) for count in every.tolist()]


def test_no_image_of_one_split_is_in_the_other():
    train = {Digits()[i].images[0].tobytes() for i in range(len(Digits()))}
    stored = Digits().on("held_out")
    assert not train & {stored[i].images[0].tobytes() for i in range(len(stored))}


def test_another_seed_is_another_split():
    assert scans(Digits()) == scans(Digits())
    assert set(scans(Digits())) != set(scans(Digits(seed=1)))


def test_prompt_shows_the_scan_enlarged_and_asks():
    prompt = Digits()[7]
    (image,) = prompt.images
    assert image.dtype == np.uint8 and image.shape == (32, 32, 3)
    assert prompt.messages[0]["content"] == [{"type": "image"}, {"type": "text", "text": "Which digit is this?"}]
    scan = load_digits().images[prompt.info["scan"]]
    # every pixel of a 4x4 block is the scanned pixel: 0 stays 0 and full ink, 16, is 255
    np.testing.assert_array_equal(image[2::4, 1::4, 2], np.round(scan * 255 / 16))
    assert image.max() <= 255 and (image == image[..., :1]).all()
    assert prompt.answer == load_digits().target[prompt.info["scan"]]


def test_writing_on_an_image_does_not_change_the_task():
    Digits()[0].images[0][:] = 9
    assert not (Digits()[0].images[0] == 9).all()


def test_demonstrations_are_right():
    task = Digits(size=8)
    for index in range(0, len(task), 50):
        assert task.score(reply(task[index], task.demonstrate(index))) == {"exact": 1.0, "format": 1.0}


@pytest.mark.parametrize(
    ("text", "exact", "well_formed"),
    [("3", 1, 1), ("Two loops.\n3 ", 1, 1), ("8", 0, 1), ("33", 0, 0), ("three", 0, 0), ("3.", 0, 0), ("", 0, 0)],
)
def test_verify(text, exact, well_formed):
    assert verify(text, 3) == {"exact": exact, "format": well_formed}


def test_refusals_name_the_task():
    with pytest.raises(IndexError, match=r"'digits' \(train\) has 1347 problems, asked for index 1347"):
        Digits()[1347]
    with pytest.raises(ValueError, match="'digits' has the splits"):
        Digits(split="val")
    with pytest.raises(ValueError, match="multiple of 8"):
        Digits(size=30)
