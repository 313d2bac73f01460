import importlib
import inspect
import pkgutil

import pytest

from mmrl.commands.catalogue.listing import METHODS, PARTS
from mmrl.commands.catalogue.sources import find_environment, find_missing_packages, find_source, find_subclasses
from mmrl.config.wiring import load


@pytest.mark.parametrize("name", PARTS)
def test_the_sources_give_the_classes_and_docstrings_that_an_import_gives(name):
    package, base_path = PARTS[name]
    base, imported = load(base_path), {}
    roots = [(root, importlib.import_module(root)) for root in (package, METHODS)]
    for module in (m for name, root in roots for m in pkgutil.walk_packages(root.__path__, f"{name}.")):
        for part in vars(importlib.import_module(module.name)).values():
            own = inspect.isclass(part) and part.__module__ == module.name and not part.__name__.startswith("_")
            if own and issubclass(part, base) and part is not base and not inspect.isabstract(part):
                summary = " ".join(inspect.cleandoc(part.__doc__ or "").split("\n\n")[0].split())
                imported[f"{part.__module__}.{part.__qualname__}"] = summary
    assert imported
    assert {source.path: source.summary for source in find_subclasses((package, METHODS), base_path)} == imported


def test_a_class_is_found_where_a_package_imports_it_from():
    source = find_source("lightning.pytorch.callbacks.ModelCheckpoint")
    assert source is not None
    assert source.path == "lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint"
    assert find_source("torch.optim.AdamW").path == "torch.optim.adamw.AdamW"
    assert find_source("mmrl.objectives.policy.Nothing") is None


def test_missing_packages_are_those_that_a_module_and_its_own_imports_need(tmp_path, monkeypatch):
    package = tmp_path / "example_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "outer.py").write_text("import json\nfrom example_package.inner import value\n")
    (package / "inner.py").write_text("import not_installed_anywhere\n\n\ndef late():\n    import only_when_called\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_missing_packages("example_package.outer") == ["not_installed_anywhere"]


def test_a_simulator_names_its_environment_and_what_makes_it():
    assert find_environment(find_source("sims.libero.sim.LiberoSim")) == (".venv-libero", "libero")
    assert find_environment(find_source("sims.gym.sim.GymSim")) is None
