"""Files of samples in a run: <run>/rollouts/<iteration>.jsonl, a group a line, with bounded disk use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.files.atomic import write_file
from mmrl.files.foreign import read_foreign
from mmrl.files.strict_json import parse_json
from mmrl.samples.check import check_group

FOLDER = "rollouts"
_LARGEST = 2**30  # bytes of a file


class SampleFolder:
    """Writes and reads the samples of a run.

    Files of older iterations are thinned out when they need more than `max_bytes`: those of every second iteration are
    kept, then of every fourth, and so on. The newest file always stays.

    Args:
        run_dir: folder of the run.
        max_bytes: of all files together.
    """

    def __init__(self, run_dir: str | Path, max_bytes: int = 64 * 2**20):
        self.path, self.max_bytes = Path(run_dir) / FOLDER, max_bytes
        self._sizes: dict[int, int] | None = None  # of the files, by iteration; None before the first one is written
        self._stride = 1  # iterations between the files that are kept
        self._newest = -1

    def write(self, iteration: int, groups: Sequence[Mapping[str, Any]]) -> None:
        """Write the file of an iteration; the first one removes those of later iterations, which a resume repeats."""
        if self._sizes is None:
            self.path.mkdir(parents=True, exist_ok=True)
            self._sizes = {each: self._file(each).lstat().st_size for each in self.iterations()}
            for later in [each for each in self._sizes if each > iteration]:
                self._remove(later)
        elif self._newest in self._sizes and self._newest % self._stride:
            self._remove(self._newest)
        text = "".join(json.dumps(group, ensure_ascii=False, separators=(",", ":")) + "\n" for group in groups)
        content = text.encode("utf-8", "replace")  # half of a surrogate pair has no code in UTF-8
        write_file(self._file(iteration), content)
        self._sizes[iteration], self._newest = len(content), iteration
        while sum(self._sizes.values()) > self.max_bytes and len(self._sizes) > 1:
            self._stride *= 2
            for each in [each for each in self._sizes if each % self._stride and each != iteration]:
                self._remove(each)
            if self._stride > max(self._sizes):
                for each in [each for each in self._sizes if each != iteration]:
                    self._remove(each)

    def iterations(self) -> list[int]:
        """Return the iterations that have a file, in order."""
        return sorted(int(file.stem) for file in self.path.glob("*.jsonl") if file.stem.isdigit())

    def read(self, iteration: int) -> list[dict[str, Any]]:
        """Read the groups of an iteration.

        Raises:
            ValueError: there is no such file, it is something else, or a line of it is broken.
        """
        file = self._file(iteration)
        if not file.exists():
            numbers = ", ".join(map(str, self.iterations())) or "none"
            raise ValueError(f"{file}: no such file; iterations with samples are: {numbers}")
        remedy, groups = "remove the file, or run again", []
        for number, line in enumerate(read_foreign(file, remedy, _LARGEST).split(b"\n"), start=1):
            if line:
                groups.append(parse_json(line, f"{file}:{number}", remedy))
                check_group(groups[-1], f"{file}:{number}", remedy)
        return groups

    def _file(self, iteration: int) -> Path:
        return self.path / f"{iteration}.jsonl"

    def _remove(self, iteration: int) -> None:
        self._file(iteration).unlink(missing_ok=True)
        assert self._sizes is not None
        del self._sizes[iteration]
