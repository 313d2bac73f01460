"""MkDocs hook: a page for each kind of part, from the signatures and docstrings of its classes and from conf/."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2]))

from signatures import arguments, docstring, methods, split_docstring

from mmrl.commands.catalogue.sources import Source, find_source, find_subclasses

ROOT = Path(__file__).parents[2]
MARKS = re.compile(r"(?!^\s*\* )[*_{]")
"""What Markdown would take for emphasis or attributes; a star that begins a line of a list stays."""


@dataclass(frozen=True)
class Slot:
    name: str
    use: str  # how a command line chooses one
    bases: tuple[str, ...]
    packages: tuple[str, ...] = ("mmrl",)


SLOTS = (
    Slot(
        "tasks",
        "`task=NAME`, `task.KEY=VALUE` on the command line.",
        ("mmrl.core.types.Task",),
        ("mmrl", "tasks", "sims"),
    ),
    Slot("sims", "`sim=NAME`, `sim.KEY=VALUE`, with `task=sim`.", ("mmrl.core.types.Sim",), ("sims",)),
    Slot("policies", "`policy=NAME`, `policy.KEY=VALUE`.", ("mmrl.policies.base.Policy",)),
    Slot("chains", "Action heads: `policy.chain._target_=CLASS`.", ("mmrl.policies.vla.chains.base.Chain",)),
    Slot("rollouts", "`rollout=NAME`, `rollout.KEY=VALUE`.", ("mmrl.rollouts.base.Rollout",)),
    Slot(
        "rewards",
        "`reward._target_=CLASS`, `reward.KEY=VALUE`.",
        ("mmrl.rewards.base.Reward", "mmrl.rewards.models.frames.FrameReward"),
    ),
    Slot(
        "annotators",
        "`data.annotators.NAME._target_=CLASS`; `data.pipeline` lists those that run.",
        ("mmrl.annotators.base.Annotator",),
    ),
    Slot("transforms", "`data.transforms.NAME._target_=CLASS`.", ("mmrl.transforms.base.EpisodeTransform",)),
    Slot(
        "terms",
        "`objective.terms.NAME._target_=CLASS`, `objective.coefficients.NAME=NUMBER`.",
        ("mmrl.objectives.objective.Term",),
    ),
    Slot("rows", "`data.rows.NAME._target_=CLASS`.", ("mmrl.transforms.rows.base.RowTransform",)),
    Slot(
        "schedules",
        "In the place of a number: `sampling.temperature='{_target_: CLASS, ...}'`.",
        ("mmrl.schedules.base.Schedule",),
    ),
    Slot("weightings", "`weighting._target_=CLASS`.", ("mmrl.objectives.weighting.Weighting",)),
    Slot("curricula", "`curriculum=NAME`, `curriculum.KEY=VALUE`.", ("mmrl.curricula.base.Curriculum",)),
    Slot("engines", "`engine=NAME`, `engine.KEY=VALUE`.", ("mmrl.engines.base.Engine",)),
    Slot(
        "phases",
        "`phases=NAME`, `model.phases.NAME.KEY=VALUE`, with `learner=phased`.",
        ("mmrl.learners.phases.base.Phase",),
    ),
    Slot("evaluators", "`evaluation.evaluators.NAME._target_=CLASS`.", ("mmrl.evaluation.base.Evaluator",)),
    Slot("callbacks", "`trainer.callbacks.NAME._target_=CLASS`.", ("lightning.Callback",)),
    Slot("tools", "`rollout.tools`, with `rollout=wiki` as an example.", ("mmrl.tools.base.Tool",), ("mmrl", "tasks")),
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages `reference/<slot>.md` and their index."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> dict[str, str]:
    """The Markdown of every page, by its path below docs/."""
    uses = _uses(ROOT / "conf")
    rows = []
    out = {}
    for slot in SLOTS:
        found = find_parts(slot)
        if not found:
            raise ValueError(f"no class derives from {', '.join(slot.bases)}; correct SLOTS in {__file__}")
        out[f"reference/{slot.name}.md"] = _page(slot, found, uses)
        base = find_source(slot.bases[0])
        said = (
            split_docstring(docstring(base))[0] if base and base.module.startswith("mmrl") else "Lightning's callbacks."
        )
        rows.append(f"| [{slot.name}]({slot.name}.md) | {len(found)} | {_cell(said)} | {_cell(slot.use)} |")
    head = "# Reference\n\nEvery part that can be put into a slot, from its source: class, arguments, use.\n\n"
    table = "| slot | parts | the interface | on the command line |\n|---|---|---|---|\n"
    out["reference/index.md"] = head + table + "\n".join(rows) + "\n"
    return out


def find_parts(slot: Slot) -> list[Source]:
    """The public classes that can be put into a slot."""
    found = [part for base in slot.bases for part in find_subclasses(slot.packages, base)]
    found.sort(key=lambda part: part.module.startswith("mmrl.methods"))  # parts of a single paper come last
    return [part for part in found if not part.node.name.startswith("_")]


def _page(slot: Slot, found: list[Source], uses: dict[str, list[str]]) -> str:
    lines = [f"# {slot.name.capitalize()}", "", slot.use, ""]
    for base in filter(None, map(find_source, slot.bases)):
        if base.module.startswith("mmrl"):
            lines += _interface(base)
    lines += ["| part | what it does |", "|---|---|"]
    lines += [f"| [`{part.node.name}`](#{part.node.name.lower()}) | {_cell(part.summary)} |" for part in found]
    for part in found:
        lines += ["", *_entry(part, uses.get(part.path, []))]
    return "\n".join(lines) + "\n"


def _interface(base: Source) -> Iterator[str]:
    first, rest = split_docstring(docstring(base))
    yield from (f"## Interface: {base.node.name}", "", _plain(first), "", _plain(rest), "", "```python")
    yield from (f"from {base.module} import {base.node.name}", "```", "")
    yield from ("| method | what it does |", "|---|---|")
    for method in methods(base):
        if method.name.startswith("_") and method.name != "__call__":
            continue
        to_write = "**to write.** " if "abstractmethod" in map(ast.unparse, method.decorator_list) else ""
        said = split_docstring(ast.get_docstring(method) or "")[0]
        returns = f" -> {ast.unparse(method.returns)}" if method.returns else ""
        taken = ", ".join(item.arg for item in method.args.args if item.arg not in ("self", "cls"))
        yield f"| {_code(f'{method.name}({taken}){returns}')} | {to_write}{_cell(said)} |"
    yield from ("", f"Source: {_link(base)}", "")


def _entry(part: Source, uses: list[str]) -> Iterator[str]:
    first, rest = split_docstring(docstring(part))
    yield from (f"## {part.node.name}", "", _plain(first), "")
    if rest:
        yield from (_plain(rest), "")
    yield f"`{part.path}` ({_link(part)})"
    if uses:
        yield from ("", f"Used by {', '.join(f'`{use}`' for use in uses)}.")
    taken = arguments(part)
    if not taken:
        yield from ("", "It takes no arguments.")
        return
    yield from ("", "| argument | type | default | meaning |", "|---|---|---|---|")
    for item in taken:
        yield f"| `{item.name}` | {_code(item.type)} | {_code(item.default)} | {_cell(item.meaning)} |"


def _link(part: Source) -> str:
    folder = part.module.replace(".", "/")
    place = f"{folder}.py" if (ROOT / f"{folder}.py").is_file() else f"{folder}/__init__.py"
    return f"[{place}](../../{place}#L{part.node.lineno})"


def _uses(conf: Path) -> dict[str, list[str]]:
    """By class: the options of conf/ that name it, as words of a command line; recipes last."""
    out: dict[str, list[str]] = {}
    files = sorted((file.relative_to(conf).parts[0], file.stem, file) for file in conf.glob("*/**/*.yaml"))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for group, name, file in sorted(files, key=lambda entry: entry[0] == "recipe"):
        for path in dict.fromkeys(_targets(yaml.load(file.read_text(), loader))):
            out.setdefault(path, []).append(f"{group}={name}")
    return out


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        for value in node.values():
            yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)


def _plain(text: str) -> str:
    """Text in which a, b_t and V_{t+1} stand as they are; spans and indented lines of code are left alone."""
    lines = (line if line.startswith("    ") else _escape(line) for line in text.split("\n"))
    return "\n".join(lines)


def _escape(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else MARKS.sub(r"\\\g<0>", part).replace("<", "&lt;") for part in parts)


def _cell(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", _plain(" ".join(text.split())))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""  # a bar within a code span does not end a cell
