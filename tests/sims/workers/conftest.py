"""A Python environment that has numpy, gymnasium and msgpack and nothing else."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

_PACKAGES = ("numpy", "gymnasium", "msgpack", "cloudpickle", "farama_notifications", "typing_extensions")


@pytest.fixture(scope="package")
def bare_python(tmp_path_factory):
    """Path of the interpreter of an environment whose packages are links to those of this one."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in _PACKAGES:
        origin = Path(importlib.util.find_spec(name).origin)
        found = origin.parent if origin.name == "__init__.py" else origin
        libraries = [found.with_name(f"{name}.libs")]  # compiled parts that a package loads from beside it
        for path in [found, *filter(Path.exists, libraries)]:
            (site / path.name).symlink_to(path)
    return str(folder / "bin" / "python")
