"""MkDocs hook: each task's page ends with held-out problems, the expert's answers, and floor and ceiling."""

from __future__ import annotations

import html
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from PIL import Image

sys.path.append(str(Path(__file__).parents[2]))

from mmrl.config.compose import compose
from mmrl.core.text_environment import EnvironmentTask
from mmrl.core.types import Prompt, Task
from mmrl.experiments.results import FOLDER, result_file
from tasks.browser.chromium import BrowserError

ROOT = Path(__file__).parents[2]
COUNT = 3
SIDE = 192  # pixels of the shorter side, at least

_sections: dict[str, list[str]] = {}  # by page


def on_config(config: Any) -> Any:
    """List the pages of all packages of tasks under `Tasks in detail`."""
    pages = [f"tasks/{file.parent.name}.md" for file in sorted(ROOT.glob("tasks/*/README.md"))]
    (entry,) = [entry for part in config.nav for entry in part.get("Reference", ()) if "Tasks in detail" in entry]
    entry["Tasks in detail"] = pages
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add a picture for each option of conf/task whose problems have images, and write its section."""
    from mkdocs.structure.files import File

    _sections.clear()
    for option in sorted(path.stem for path in (FOLDER / "tasks").rglob("*.json")):
        task: Task = instantiate(compose([f"task={option}"]).data.task, _convert_="all").on("held_out")
        try:
            prompts = [task[index] for index in range(COUNT)]
            picture = f"assets/tasks/{option}.png"
            section = _section(option, task, prompts, f"../{picture}")
        except (ModuleNotFoundError, BrowserError):  # an optional package or program of this option is not installed
            continue
        if prompts[0].images:
            files.append(File.generated(config, picture, content=_draw(prompts)))
        page = f"tasks/{type(task).__module__.split('.')[1]}.md"
        _sections.setdefault(page, []).append(section)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Append the sections of the page's options."""
    return "\n\n".join([markdown, *_sections.get(page.file.src_uri, ())])


def _section(option: str, task: Task, prompts: list[Prompt], picture: str) -> str:
    file = result_file("task", option)
    stored: Any = json.loads(file.read_text()) if file.exists() else None
    lines = [f"## Held-out problems of `task={option}`", ""]
    if prompts[0].images:
        lines += [f"![The images of the problems below, from left to right]({picture})", ""]
    lines += ["| problem | the expert's answer |", "|---|---|"]
    for prompt in prompts:
        begin = task.make_environment().reset(prompt).text if isinstance(task, EnvironmentTask) else ""
        lines.append(f"| {_cell(_text(prompt) + begin)} | {_cell(chr(10).join(task.script(prompt.index)))} |")
    lines += ["", f"Mean scores on {stored['count']} held-out problems:", "", "| score | random | commonest | expert |"]
    lines += ["|---|---|---|---|"]
    lines += [
        f"| {name} | {stored['random'].get(name, 0):.3f} | {stored['majority'].get(name, 0):.3f} | {value:.3f} |"
        for name, value in stored["expert"].items()
    ]
    return "\n".join(lines)


def _text(prompt: Prompt) -> str:
    parts = [message["content"] for message in prompt.messages]
    flat = [part for content in parts for part in ([content] if isinstance(content, str) else content)]
    return "\n".join(part if isinstance(part, str) else part.get("text", "") for part in flat).strip()


def _cell(text: str) -> str:
    shown = text if len(text) <= 400 else f"{text[:400]}..."
    indented = re.sub(r"(?<=\n) +", lambda spaces: "&nbsp;" * len(spaces[0]), html.escape(shown))
    return f"<code>{indented}</code>".replace("|", "&#124;").replace("\n", "<br>")


def _draw(prompts: list[Prompt]) -> bytes:
    """Join the first image of each prompt in a row, enlarged without smoothing."""
    images = [prompt.images[0] for prompt in prompts]
    scale = max(1, -(-SIDE // min(min(image.shape[:2]) for image in images)))
    images = [image.repeat(scale, 0).repeat(scale, 1) for image in images]
    height = max(len(image) for image in images)
    padded = [np.pad(image, ((0, height - len(image)), (0, 16), (0, 0)), constant_values=255) for image in images]
    stream = io.BytesIO()
    Image.fromarray(np.concatenate(padded, axis=1)).save(stream, "PNG")
    return stream.getvalue()
