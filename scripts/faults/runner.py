"""Run the tests that reach a fault, in a forked process where the functions of the method have the changed code."""

from __future__ import annotations

import ast
import gc
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

import pytest

from .functions import replace_functions
from .planting import DETACH, REACH, Fault, list_faults, mark_statements

ROOT = Path(__file__).parents[2]
METHODS, TESTS = ROOT / "mmrl" / "methods", ROOT / "tests"
SURVIVED, CAUGHT, OTHER_TYPE = 0, 1, 3  # exit codes of a child

Result = tuple[Fault, int, int]  # the exit code of its child, and the number of tests that reach it


class Source:
    """One file of a method, its faults, and which tests run which of its lines."""

    def __init__(self, path: Path) -> None:
        self.path, self.tree = path, ast.parse(path.read_text())
        self.name = str(path.relative_to(METHODS).with_suffix(""))
        self.module_name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self.faults = list_faults(self.tree)
        self.tests: dict[int, set[str]] = defaultdict(set)
        self.with_gradient: set[int] = set()

    def test_files(self) -> list[Path]:
        """Test files that bear the method's name or import it."""
        theme, paper = self.name.split("/")[:2]
        room = TESTS / "methods" / theme
        named = [room / f"test_{paper}.py", *(room / paper).glob("test_*.py")]
        importing = [path for path in TESTS.rglob("test_*.py") if f"{self.module_name} import" in path.read_text()]
        return sorted({path for path in [*named, *importing] if path.exists() and "laws" not in path.parts})

    def install(self, faults: Iterable[Fault], detach: Callable, reach: Callable | None = None) -> None:
        """Put the code with `faults` into the functions of the imported module."""
        for fault in faults:
            fault.plant()
        module = import_module(self.module_name)
        vars(module).update({DETACH: detach, REACH: reach})
        tree = self.tree if reach is None else mark_statements(self.tree)
        replace_functions(module, compile(tree, str(self.path), "exec"))
        for fault in faults:
            fault.remove()

    def install_notes(self, running: Callable[[], str]) -> None:
        """Put in code that notes which values have a gradient, and which statements the running test reaches."""

        def note_gradient(value: object, number: int) -> object:
            parts = value if isinstance(value, tuple) else (value,)
            if any(getattr(part, "requires_grad", False) for part in parts):
                self.with_gradient.add(number)
            return value

        def note_statement(line: int) -> None:
            self.tests[line].add(running())

        self.install([fault for fault in self.faults if fault.detaches], note_gradient, note_statement)


class Runner:
    """A pytest plugin that runs the collected tests once without a fault, then once per fault."""

    def __init__(self, sources: list[Source], seconds: float) -> None:
        self.sources, self.seconds = sources, seconds
        self.running, self.failure = "", None
        self.cpu: dict[str, float] = {}
        self.results: dict[str, list[Result]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        yield
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            self.failure = f"{item.nodeid}: {call.excinfo.exconly()}"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be imported")
        items = {item.nodeid: item for item in session.items}
        for source in self.sources:
            source.install_notes(lambda: self.running)
        for self.running, item in items.items():
            self._run_without_fault(item)
        for source in self.sources:
            source.install([], _without_gradient)
        gc.collect()
        gc.freeze()
        for source in self.sources:
            start = time.monotonic()
            self._leave_out_failing(source, items)
            self.results[source.name] = [self._run(source, n, items) for n in range(len(source.faults))]
            codes = Counter(code for _, code, _ in self.results[source.name])
            others = codes[SURVIVED] + codes[OTHER_TYPE]
            said = f"{codes.total() - others} caught, {codes[SURVIVED]} not"
            print(f"{source.name}: {said}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        return True

    def _leave_out_failing(self, source: Source, items: dict[str, pytest.Item]) -> None:
        """Take the tests that fail in a forked process without a fault (a lock, a GPU, a port) from the source's."""
        everyone = set().union(*source.tests.values())
        if self._run_child(source, [], everyone, items) == SURVIVED:
            return
        failing = {name for name in everyone if self._run_child(source, [], {name}, items) != SURVIVED}
        for name in sorted(failing):
            print(f"{source.name}: {name} fails in a forked process without a fault; it is left out", file=sys.stderr)
        for names in source.tests.values():
            names -= failing
        if self._run_child(source, [], everyone - failing, items) != SURVIVED:
            raise SystemExit(f"{source.name}: its tests fail in a forked process without a fault, though not alone")

    def _run_without_fault(self, item: pytest.Item) -> None:
        for _ in range(2):  # the second time without what is imported, compiled or read once
            start = time.process_time()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            self.cpu[item.nodeid] = time.process_time() - start
            if not self.seconds < self.cpu[item.nodeid] < 8 * self.seconds:
                break
        if self.failure is not None:
            raise SystemExit(f"this test fails without a fault: {self.failure}")

    def _run(self, source: Source, number: int, items: dict[str, pytest.Item]) -> Result:
        fault = source.faults[number]
        names = source.tests[fault.statement]
        if fault.detaches and number not in source.with_gradient:
            return fault, OTHER_TYPE, len(names)
        code = self._run_child(source, [fault], names, items)
        if code == SURVIVED:
            print(f"{source.name} {fault.line} {fault.function}: {fault.change} ({len(names)})", flush=True)
        return fault, code, len(names)

    def _run_child(self, source: Source, faults: list[Fault], names: set[str], items: dict[str, pytest.Item]) -> int:
        """Exit code of a forked process that runs the tests, the quick ones first, until one fails."""
        names = sorted((name for name in names if self.cpu[name] < self.seconds), key=self.cpu.__getitem__)
        if not names:
            return SURVIVED
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            signal.setitimer(signal.ITIMER_PROF, 5 + 5 * sum(self.cpu[name] for name in names))  # CPU time
            signal.alarm(300)
            source.install(faults, _without_gradient)
            for name in names:
                items[name].ihook.pytest_runtest_protocol(item=items[name], nextitem=None)
                if self.failure is not None:
                    os._exit(OTHER_TYPE if "TypeError: unsupported operand" in self.failure else CAUGHT)
            os._exit(SURVIVED)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _without_gradient(value: object, _: int) -> object:
    if isinstance(value, tuple):
        return tuple(_without_gradient(part, 0) for part in value)
    return value.detach() if hasattr(value, "detach") else value
