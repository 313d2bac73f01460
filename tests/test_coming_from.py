"""The page for users of other libraries names options, classes and arguments that exist, and no topic is left out."""

import re
import subprocess
from pathlib import Path

import pytest

from mmrl.config.option_files import find_options

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/coming-from.md").read_text()
SOURCES = subprocess.run(
    ["grep", "-rhE", "--include=*.py", "--include=*.yaml",
     r"^class |[A-Za-z_]+\s*[:=]", "mmrl", "tasks", "sims", "conf"],
    cwd=ROOT, capture_output=True, text=True, check=True,
).stdout  # fmt: skip
"""Lines of our code and configurations that define a class, an argument or a key."""
ROWS = [row.strip("|").split("|") for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("|---")]
OURS = [name for row in ROWS for name in re.findall(r"`([^`]+)`", row[1])]
"""What stands in the second column, which is ours."""
GROUPS = find_options()
LEROBOT = (
    *("act", "diffusion", "eo1", "evo1", "fastwam", "gaussian_actor", "groot", "lingbot_va", "molmoact2"),
    *("multi_task_dit", "pi0", "pi05", "pi0_fast", "sac", "smolvla", "tdmpc", "vla_jepa", "vqbet", "wall_x", "xvla"),
    *("reward_classifier", "robometer", "sarm", "topreward"),
)
"""Policies and reward models that the configurations of LeRobot 0.4.4 and 0.6.1 register."""


def options(text):
    return [(group, name) for group, name in re.findall(r"\b([a-z]+)=([a-z][a-z0-9_]*)\b", text) if group in GROUPS]


def test_every_option_of_the_page_exists():
    pairs = options(PAGE)
    assert len(pairs) > 50
    assert [(group, name) for group, name in pairs if name not in GROUPS[group] and not is_code(name)] == []


def is_code(name):
    """Whether a name stands for a user's own, or for none."""
    return name in ("null", "rewards")


def test_every_class_and_argument_of_the_page_exists():
    classes = {name for text in OURS for name in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][A-Za-z]+)+\b", text)}
    keys = {
        text.partition("=")[0].split()[-1] for text in OURS if re.fullmatch(r"\.?[a-z_]+(?:\.[a-z_]+)+(?:=\S+)?", text)
    }
    assert len(classes) >= 6 and len(keys) > 60
    assert [name for name in sorted(classes) if f"class {name}" not in SOURCES and name not in FOREIGN] == []
    last = {key: key.rpartition(".")[2] for key in keys if not key.startswith("mmrl.")}
    assert [key for key, name in sorted(last.items()) if not re.search(rf"\b{name}\b\s*[:=]", SOURCES)] == []


FOREIGN = {"AdamW8bit", "RewardTrainer"}
"""Classes of other libraries in the second column."""


def test_nothing_is_said_to_be_absent_that_exists():
    absent = [row for row in ROWS if re.search(r"\bnot there\b", " ".join(row))]
    texts = [" ".join(row).partition("not there")[2].strip() or row[0] for row in absent]
    names = {name for text in texts for name in re.findall(r"`([a-z_0-9]+)`", text)}
    present = {"act", "diffusion", "pi0", "pi05", "pi0_fast", "smolvla", "sac", "gaussian_actor"}
    assert names == set(LEROBOT) - present | {"use_film"}
    assert not names & {option for group in ("policy", "recipe", "method") for option in GROUPS[group]}


def test_the_reference_is_synchronised_by_two_callbacks():
    from mmrl.callbacks import snapshots

    row = next(row for row in ROWS if "sync_ref_model" in row[0])
    assert "ReferenceEMA" in row[1] and "ReferenceReset" in row[1]
    assert snapshots.ReferenceEMA and snapshots.ReferenceReset


def test_every_policy_of_lerobot_is_there_or_said_to_be_missing():
    row = next(row for row in ROWS if "--policy.type" in row[0])
    named = set(re.findall(r"\b[a-z][a-z0-9_]*\b", " ".join(row)))
    assert not set(LEROBOT) - named
    ours = {"diffusion": "diffusion_policy"}
    for name in re.findall(r"`?([a-z0-9_]+)`", row[0].partition("=")[2]):
        assert ours.get(name, name) in GROUPS["policy"], name


def test_keys_are_those_of_the_release_that_the_page_names():
    """Keys of verl before 0.9 were those of one worker class."""
    assert "Keys of verl 0.9." in PAGE
    for old in ("actor_rollout_ref.actor.use_dynamic_bsz", "custom_reward_function.path`", "reward_model.model.path"):
        assert f"`{old}" not in PAGE


def test_no_library_has_two_sections():
    headings = re.findall(r"^## (.+)$", PAGE, re.M)
    assert len(headings) == len(set(headings)) and sum("OpenVLA" in heading for heading in headings) == 1


@pytest.mark.parametrize(
    "page, word",
    [
        ("how-to/simulator.md", "sim=gym_images"),
        ("how-to/simulator.md", "Sim.stepwise"),
        ("how-to/loss.md", "metrics(out, batch)"),
    ],
)
def test_what_users_asked_for_stands_on_a_page(page, word):
    assert word in (ROOT / "docs" / page).read_text()
