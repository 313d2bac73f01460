"""MkDocs hook: pages that lie beside docs/, and links to source files as pages that show the source."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(```.*?```)", flags=re.DOTALL)


def outside_pages(root: Path = ROOT) -> dict[str, str]:
    """Where pages that lie beside docs/ stand in the site, by their path in the repository."""
    pages = {"CONTRIBUTING.md": "contributing.md"}
    for file in sorted([*root.glob("tasks/*/README.md"), *root.glob("sims/*/README.md")]):
        folder = file.parent.relative_to(root).as_posix()
        pages[f"{folder}/README.md"] = f"{folder}.md"
    return pages


def on_files(files: Any, config: Any) -> Any:
    """Add the pages beside docs/, and a page for every source file that a page links to."""
    from mkdocs.structure.files import File

    outside = outside_pages()
    for path, page in outside.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    sources = set()
    for file in files.documentation_pages():
        for place in _targets(file.src_uri, file.content_string):
            if place not in outside and not place.startswith("docs/") and (ROOT / place).is_file():
                sources.add(place)
    for place in sorted(sources):
        files.append(File.generated(config, _source_page(place), content=_source_text(place)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links that leave docs/ to the pages of this site; a site has no folders to link to."""
    here, outside = page.file.src_uri, outside_pages()

    def replace(match: re.Match[str]) -> str:
        text, place, anchor = match[1], _place(here, match[2]), match[3] or ""
        if place in outside:
            target = outside[place]
        elif (ROOT / place).is_dir():
            return text
        elif place.startswith("docs/"):
            target = place.removeprefix("docs/")
        elif files.get_file_from_path(_source_page(place)) is not None:
            target, line = _source_page(place), anchor.removeprefix("#L")
            return (
                f"[{text}]({_relative(target, here)}){{data-line={line}}}"
                if line
                else f"[{text}]({_relative(target, here)})"
            )
        else:
            return match[0]
        return f"[{text}]({_relative(target, here)}{anchor})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Give links to a line of a source file their anchors, which are made too late for the check of links."""
    anchored = r'href="\2#__codelineno-0-\1"'
    html = re.sub(r'data-line="(\d+)" href="([^"]+)"', anchored, html)
    return re.sub(r'href="([^"]+)" data-line="(\d+)"', r'href="\1#__codelineno-0-\2"', html)


def _relative(target: str, here: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(here) or ".")


def _targets(here: str, markdown: str) -> set[str]:
    return {_place(here, match[2]) for match in LINK.finditer(FENCE.sub("", markdown))}


def _place(here: str, target: str) -> str:
    """The path in the repository of a link's target."""
    origin = {page: path for path, page in outside_pages().items()}.get(here, f"docs/{here}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def _source_page(place: str) -> str:
    return f"source/{place}.md"


def _source_text(place: str) -> str:
    language = {".py": "python", ".yaml": "yaml", ".json": "json", ".sh": "sh"}.get(Path(place).suffix, "text")
    head = f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n# {place}\n\n"
    return f'{head}````{language} linenums="1"\n{(ROOT / place).read_text()}````\n'
