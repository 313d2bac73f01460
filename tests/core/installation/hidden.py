"""Hide installed packages from this process, as if they had never been installed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from mmrl.core.installation.optional_packages import DISTRIBUTIONS


class HidingFinder:
    """Finder of modules and distributions that passes over packages.

    Args:
        finder: of `sys.meta_path`.
        packages: import names that it does not find.
    """

    def __init__(self, finder: Any, packages: frozenset[str]):
        self.finder, self.packages = finder, packages
        self.distributions = {DISTRIBUTIONS[package].lower().replace("_", "-") for package in packages}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self.packages else self.finder.find_spec(name, path, target)

    def find_distributions(self, context: Any) -> Iterator[Any]:
        find = getattr(self.finder, "find_distributions", lambda context: ())
        for each in find(context):
            if str(each.metadata["Name"]).lower().replace("_", "-") not in self.distributions:
                yield each

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


@contextlib.contextmanager
def hide(packages: Iterable[str]) -> Iterator[None]:
    """Hide packages, also those that were imported before, until the end of the context."""
    names = frozenset(packages)
    finders = list(sys.meta_path)
    imported = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
    for name in imported:
        del sys.modules[name]
    sys.meta_path[:] = [HidingFinder(finder, names) for finder in finders]
    try:
        yield
    finally:
        sys.meta_path[:] = finders
        sys.modules.update(imported)
