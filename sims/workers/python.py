"""Find the Python interpreter of a simulator's environment."""

from __future__ import annotations

from pathlib import Path


def find_python(python: str | None, environment: str | None, make: str | None) -> str:
    """The interpreter that is named, or else that of an environment in the working directory or beside mmrl.

    Args:
        python: path of an interpreter, or None.
        environment: folder of the simulator's virtual environment, such as ".venv-metaworld".
        make: target of the Makefile that makes it.

    Raises:
        ValueError: there is none, with what to do.
    """
    if python is not None:
        if not Path(python).exists():
            raise ValueError(f"sim.python={python}: there is no such file")
        return str(Path(python).absolute())
    if environment is None:
        raise ValueError("sim.python is missing: name the Python interpreter that has the simulator")
    for folder in (Path.cwd(), Path(__file__).parents[2]):
        file = folder / environment / "bin" / "python"
        if file.exists():
            return str(file)
    raise ValueError(f"there is no {environment}/bin/python: run `make {make}`, or give sim.python=PATH")
