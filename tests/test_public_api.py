"""What `import mmrl` gives, and what it costs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import mmrl


def test_names_are_imported_when_they_are_used():
    """In a process of its own: neither the package nor the help of the command imports torch."""
    script = (
        "import sys, time; start = time.perf_counter(); import mmrl; seconds = time.perf_counter() - start; "
        "from mmrl.__main__ import main; main(['--help']); assert 'torch' not in sys.modules, sorted(sys.modules); "
        "assert seconds < 0.2, seconds; from mmrl import Task; assert Task.__module__ == 'mmrl.core.types'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_every_name_is_there_and_known_to_type_checkers():
    assert set(mmrl.__all__) == set(mmrl._HOME) <= set(dir(mmrl))
    tree = ast.parse(Path(mmrl.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {(alias.name, node.module) for node in block.body for alias in node.names}
    assert typed == {(name, f"mmrl.{module}") for name, module in mmrl._HOME.items()}
    for name in mmrl.__all__:
        assert getattr(mmrl, name) is getattr(importlib.import_module(f"mmrl.{mmrl._HOME[name]}"), name)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(mmrl, "nothing")
