"""Check that a YAML file can be a configuration, before LightningCLI parses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mmrl.config.renamed import check_names
from mmrl.core.errors import ConfigError

MOST_NODES = 200_000
"""Values of a configuration with its aliases written out; a run's has some hundreds."""
_LONGEST = 10**7  # bytes
_HINT = "give a file that `mmrl fit ... --print_config` printed, or a run's config.yaml"


def check_yaml(path: Path) -> dict[str, Any]:
    """Refuse missing files, text that is not YAML, duplicate or renamed keys, and recursive aliases.

    Returns:
        the mapping, with every number as text.

    Raises:
        ConfigError: the file is not one mapping with `model` and `data`.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}; {_HINT}")
    if path.stat().st_size > _LONGEST:
        raise ConfigError(f"{path}: {path.stat().st_size} bytes are too many for a configuration; {_HINT}")
    # nodes and not values, so that keys keep their lines
    try:
        with path.open(encoding="utf-8") as file:
            root = yaml.compose(file, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text in UTF-8 ({error.reason} at byte {error.start}); {_HINT}") from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{path}: the character {error.character!r} is not allowed; {_HINT}") from error
    except yaml.composer.ComposerError as error:
        raise ConfigError(f"{path}: {error.problem}, {_line(error.problem_mark)}; it must be one document") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: its values are nested too deeply to be read; {_HINT}") from error
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{path}: {error.problem}, {_line(error.problem_mark)}; {_HINT}") from error
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag.endswith(":null")):
        raise ConfigError(f"{path} is empty; {_HINT}")
    # aliases are bounded before anything is built of them
    _count(root, path, {}, set())
    _check(root, path, set())
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: not a mapping with trainer, model and data; {_HINT}")
    names = {key.value for key, _ in root.value if isinstance(key, yaml.ScalarNode)}
    if missing := [name for name in ("model", "data") if name not in names]:
        raise ConfigError(f"{path}: {' and '.join(missing)} missing, there is {sorted(names) or 'nothing'}; {_HINT}")
    config: dict[str, Any] = yaml.constructor.BaseConstructor().construct_document(root)
    check_names(config, f"{path}: ")
    return config


def _count(node: yaml.Node, path: Path, counts: dict[int, int], above: set[int]) -> int:
    """Count the nodes below a node with aliases expanded; each node is visited once."""
    if id(node) in above:
        raise ConfigError(f"{path}: recursive aliases, {_line(node.start_mark)}; write them out")
    if id(node) not in counts:
        inside = [n for pair in node.value for n in pair] if isinstance(node, yaml.MappingNode) else node.value
        inside = inside if isinstance(inside, list) else []
        counts[id(node)] = 1 + sum(_count(child, path, counts, above | {id(node)}) for child in inside)
    if counts[id(node)] > MOST_NODES:
        raise ConfigError(f"{path}: its aliases expand to more than {MOST_NODES} values; write the values instead")
    return counts[id(node)]


def _check(node: yaml.Node, path: Path, ids: set[int]) -> None:
    """Refuse tags that are not YAML's own, and duplicate keys."""
    if id(node) in ids:
        return
    ids.add(id(node))
    if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
        raise ConfigError(f"{path}: the tag {node.tag} is not read, {_line(node.start_mark)}; write a plain value")
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{path}: a key that is not a string, {_line(key.start_mark)}; keys are strings")
            if key.value in lines:
                raise ConfigError(
                    f"{path}: the key {key.value!r} is given twice, in lines {lines[key.value]} and "
                    f"{key.start_mark.line + 1}; take one out"
                )
            lines[key.value] = key.start_mark.line + 1
            _check(value, path, ids)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check(value, path, ids)


def _line(mark: yaml.Mark | None) -> str:
    return "at its end" if mark is None else f"line {mark.line + 1}"


def list_given(args: Any) -> list[Any]:
    """Return what was given before it was parsed: the nested dictionary, or the files of a command's arguments.

    Of arguments --KEY=VALUE the parser refuses unknown keys itself.
    """
    if isinstance(args, dict):
        return [args]
    pairs = [(word, after) for word, after in zip(args, [*args[1:], ""]) if word.partition("=")[0] == "--config"]
    files = [Path(word.partition("=")[2] or after) for word, after in pairs]
    return [check_yaml(file) for file in files if file.is_file()]
