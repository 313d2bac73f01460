"""Compare two configurations up to renamings, to tell a renaming from a changed value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.experiments.content import OWN

Path = tuple[str, ...]
WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Form:
    """Allowed difference between configurations that changes no number.

    Args:
        old: key and value at the older commit, as a mapping of one entry; None if the key is new.
        new: key and value now; None if the key is gone.
        reason: why no number changes.
    """

    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    reason: str

    def matches(self, old: tuple[str, Any] | None, new: tuple[str, Any] | None) -> bool:
        """Whether this difference is the one between two entries."""
        sides = ((self.old, old), (self.new, new))
        return all(repr(want) == repr(None if got is None else dict([got])) for want, got in sides)


@dataclass
class ConfigComparison:
    """Comparison of configurations of two commits up to renamings.

    Keys with one name are compared with each other, the remaining keys of a mapping in order. Plain values have to be
    equal, and texts have to be equal word by word, where a word may have been renamed as a key of the same
    configuration was. Import paths of this project are names too; each has one new name in all configurations that are
    compared, and so has each key of a class.

    Args:
        forms: allowed differences.
        words: words in texts that were renamed although no key was: old to new.
    """

    forms: Sequence[Form] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    _names: dict[tuple[str, ...], str] = field(default_factory=dict)

    def find_difference(self, old: Any, new: Any) -> str | None:
        """Find the first difference, with its old and its new path; None if only names differ."""
        keys: set[tuple[str, str]] = set()
        texts: list[tuple[Path, Path, str, str]] = []
        for difference in self._compare(old, new, (), (), keys, texts):
            return difference
        allowed = keys | set(self.words.items())
        for old_path, new_path, before, after in texts:
            pairs = list(zip(WORD.findall(before), WORD.findall(after)))
            same_form = WORD.sub("_", before) == WORD.sub("_", after)
            if not same_form or any(one != other and (one, other) not in allowed for one, other in pairs):
                return _format(old_path, before, new_path, after)
        return None

    def _compare(self, old: Any, new: Any, old_path: Path, new_path: Path, keys: set, texts: list) -> Iterator[str]:
        if isinstance(old, dict) and isinstance(new, dict):
            yield from self._compare_mappings(old, new, old_path, new_path, keys, texts)
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for i, (before, after) in enumerate(zip(old, new)):
                yield from self._compare(before, after, (*old_path, str(i)), (*new_path, str(i)), keys, texts)
        elif isinstance(old, str) and isinstance(new, str):
            if _is_own(old) and _is_own(new):
                yield from self._rename(("import path", old), new)
            elif old_path[-1:] == ("_target_",) and old != new:
                yield _format(old_path, old, new_path, new)
            elif old != new:
                texts.append((old_path, new_path, old, new))
        elif type(old) is not type(new) or old != new:
            yield _format(old_path, old, new_path, new)

    def _compare_mappings(
        self, old: dict, new: dict, old_path: Path, new_path: Path, keys: set, texts: list
    ) -> Iterator[str]:
        pairs = [(key, key) for key in old if key in new]
        old_keys = [key for key in old if key not in new and not self._has_form((key, old[key]), None)]
        new_keys = [key for key in new if key not in old and not self._has_form(None, (key, new[key]))]
        if len(old_keys) != len(new_keys):
            yield _format(old_path, {k: old[k] for k in old_keys}, new_path, {k: new[k] for k in new_keys})
            return
        for before, after in [*pairs, *zip(old_keys, new_keys)]:
            if before != after:
                keys.add((before, after))
            if "_target_" in old:
                yield from self._rename(("key", str(old["_target_"]), before), after)
            if not self._has_form((before, old[before]), (after, new[after])):
                paths = (*old_path, before), (*new_path, after)
                yield from self._compare(old[before], new[after], *paths, keys, texts)

    def _has_form(self, old: tuple[str, Any] | None, new: tuple[str, Any] | None) -> bool:
        return any(form.matches(old, new) for form in self.forms)

    def _rename(self, old: tuple[str, ...], new: str) -> Iterator[str]:
        """Record a renaming; return a difference if the old name has another new name elsewhere."""
        other = self._names.setdefault(old, new)
        if other != new:
            yield f"{' '.join(old)} has two new names, {other} and {new}"


def _is_own(text: str) -> bool:
    """Whether a text is an import path of this project."""
    return text.split(".")[0] in OWN and re.fullmatch(r"[\w.]+\.[\w.]+", text) is not None


def _format(old_path: Path, old: Any, new_path: Path, new: Any) -> str:
    return f"{'.'.join(old_path)} was {old!r}, {'.'.join(new_path)} is {new!r}"
