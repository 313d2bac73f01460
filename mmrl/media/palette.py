"""Colours and margins of images with captions: videos and contact sheets."""

from __future__ import annotations

WHITE, GREY, GREEN, RED = (245, 245, 245), (150, 150, 150), (90, 200, 120), (235, 95, 95)
BACKGROUND = (24, 24, 28)
MARGIN = 8  # pixels
