"""Every notebook of examples/notebooks runs: its cells in this process at a tiny size, and in a kernel of its own."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_recipes import ROOT

FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(file.stem for file in FOLDER.glob("*.ipynb"))
TINY = ("trainer.max_epochs=1", "data.num_prompts=2", "data.group_size=2", "data.evaluation.count=2")
NARROW = ("policy.config.hidden_size=32", "policy.config.intermediate_size=64", "policy.config.num_hidden_layers=1")
LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("vlm", "vla")]
COLD = "trainer.callbacks.warm_start=null"
SIZES = {
    "text": (*TINY, *NARROW, COLD),
    "vlm": (*TINY, COLD),
    "vla": (*TINY, COLD),
    "control": ("trainer.max_epochs=1", "rollout.horizon=16", "data.evaluation.count=2"),
}


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text())


def set_parameters(notebook: dict[str, Any], **values: Any) -> None:
    """Write values behind those of the cell that is tagged parameters, as papermill does."""
    (cell,) = (cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", []))
    names = {target.id for node in ast.parse("".join(cell["source"])).body for target in node.targets}
    assert names == set(values)
    cell["source"] = "\n".join(["".join(cell["source"]), *(f"{name} = {value!r}" for name, value in values.items())])


def test_there_is_a_notebook_for_each_kind_of_policy():
    assert set(SIZES) == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_stored_without_output_and_name_their_extra(name):
    notebook = read(name)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    extra = f"[{name}]" if name in ("vlm", "vla") else ""
    assert f"pip install {extra and chr(39)}mmrl-lightning{extra}" in "".join(notebook["cells"][0]["source"])


@pytest.mark.parametrize("name", ["control", "text", *LONG])
def test_the_cells_of_a_notebook_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = read(name)
    set_parameters(notebook, run_dir=str(tmp_path / "run"), sizes=SIZES[name], count=2)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}.ipynb", "exec"), namespace)
    assert (tmp_path / "run" / "metrics.csv").is_file() and (tmp_path / "run" / "evaluation.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_in_a_kernel(name, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="pip install 'mmrl-lightning[package]' installs it")
    nbformat = pytest.importorskip("nbformat", reason="pip install 'mmrl-lightning[package]' installs it")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(name)
    set_parameters(notebook, run_dir=str(tmp_path / "run"), sizes=SIZES[name], count=2)
    parsed = nbformat.reads(json.dumps(notebook), as_version=4)  # the lines of a cell become one string
    nbformat.validate(parsed)
    nbclient.NotebookClient(parsed, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in parsed.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs and all(output.output_type != "error" for output in outputs)
    assert Path(tmp_path, "run", "metrics.csv").is_file()
