"""docs/robots.md follows from the stored results; frames are joined in order."""

import importlib.util
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    """Where this fails: python scripts/robots_page.py."""
    page = load("robots_page")
    assert page.PAGE.read_text() == page.render_page()
    protocols = page.read_protocols()
    assert all((page.FOLDER / "robots" / f"{recipe}.png").exists() for recipe in protocols)


def test_frames_are_joined_from_the_first_to_the_last():
    frames = [np.full((2, 2, 3), i, np.uint8) for i in range(11)]
    strip = load("robot_frames").join_frames(frames, 6)
    assert strip.shape == (2, 12, 3) and strip[0, ::2, 0].tolist() == [0, 2, 4, 6, 8, 10]
