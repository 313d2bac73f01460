"""Find the file that makes a test fail, and patch it: `Q>9` names its symptom Q and the value 9 that it must have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from mmrl.tools.base import Tool, ToolError
from tasks.generated import GeneratedTask, ask_user

FILES = "abcdefghijklmnop"
SYMPTOMS = "ABCDEFGHIJKLMNOP"


@dataclass(frozen=True)
class Issue:
    """A failing test: the number of the file at fault, the value that it must have, and the values of all files."""

    file: int
    wanted: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Patches(GeneratedTask):
    """Issues of a repository: a symptom, which file has it is the same in all issues, and the value that is wanted.

    The answer is a file and a value, `c9`. The tests pass if the file is the one at fault and the value is right. Which
    file has a symptom is shown by opening it, and by guidance.

    Args:
        files: of the repository.
        call: how the expert opens a file, with {file}: as the rollout's parser has it for the tool's name.
    """

    files: int = 10
    call: str = "?{file};"

    name = "patches"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(2, f"task {self.name!r}:", files=self.files)
        if self.files > len(FILES):
            raise ConfigError(f"task {self.name!r}: files must be at most {len(FILES)}, got {self.files}")

    @cached_property
    def symptoms(self) -> str:
        """Symptom of each file."""
        order = derive_rng(self.name, "symptoms", self.seed).permutation(self.files)
        return "".join(SYMPTOMS[i] for i in order)

    def draw(self, rng: np.random.Generator) -> Issue:
        values = tuple(int(value) for value in rng.integers(10, size=self.files))
        file = int(rng.integers(self.files))
        wanted = int((values[file] + rng.integers(1, 10)) % 10)
        return Issue(file, wanted, values)

    def split_key(self, problem: Issue) -> str:
        return repr(problem)

    def write_prompt(self, problem: Issue, key: str) -> Prompt:
        return Prompt(
            key,
            ask_user(f"{self.symptoms[problem.file]}>{problem.wanted}"),
            answer=f"{FILES[problem.file]}{problem.wanted}",
            info={"values": problem.values},
        )

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)

    def script(self, index: int) -> list[str]:
        """Open the file at fault and patch it."""
        answer = self[index].answer
        return [self.call.format(file=answer[0]), self.write_answer(answer)]

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """`exact`: the tests pass; `file`: the file is the one at fault; `value`: the value is the wanted one."""
        patch = answer.strip()
        well_formed = re.fullmatch(r"[a-p][0-9]", patch) is not None
        return {
            "exact": float(patch == prompt.answer),
            "file": float(well_formed and patch[0] == prompt.answer[0]),
            "value": float(well_formed and patch[1] == prompt.answer[1]),
        }

    def guide(self, prompt: Prompt, attempts: Sequence[Episode]) -> str:
        """Write what the tests said of the first patch, `e-`, if there was one, and the file to open, `c`."""
        patches = [str(attempt.output).strip() for attempt in attempts]
        wrong = next((p[0] for p in patches if re.fullmatch(r"[a-p][0-9]", p) and p[0] != prompt.answer[0]), "")
        return write_guidance(wrong, prompt.answer[0])

    def read_file(self, prompt: Prompt, file: str) -> str:
        """Return what a file shows: its value and its symptom; "" if there is no such file."""
        place = FILES.find(file) if len(file) == 1 else -1
        return f"{prompt.info['values'][place]}{self.symptoms[place]}" if 0 <= place < self.files else ""


def write_guidance(wrong: str, file: str) -> str:
    """Write guidance: a file whose patch failed the tests, if any, and the file to open."""
    return f"{wrong}-{file}" if wrong else file


@dataclass(frozen=True)
class GuidedPatches(Patches):
    """Patches whose training problems demonstrate a weak agent: it opens any file and patches it, or follows guidance.

    Args:
        guided: probability of a prompt with guidance, whose file is opened and patched; in half of them a wrong patch
            is named. Without guidance the file is random.
        instruction: text between prompt and guidance: as the transform has it.
    """

    guided: float = 0.5
    instruction: str = "|"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(f"task {self.name!r}:", guided=self.guided)

    def choose(self, index: int) -> tuple[str, str]:
        """Return the guidance of a problem, "" for none, and the file that its script opens."""
        rng = derive_rng(self.name, "weak", self.split, self.seed, index)
        is_guided, right = rng.random() < self.guided, FILES[self.problem(index).file]
        other = FILES[int(rng.integers(self.files))]
        if not is_guided:
            return "", other
        return write_guidance(other if rng.random() < 0.5 and other != right else "", right), right

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        guidance, _ = self.choose(index)
        if not guidance:
            return prompt
        return Prompt(
            prompt.key,
            ask_user(f"{prompt.messages[-1]['content']}{self.instruction}{guidance}"),
            answer=prompt.answer,
            info=prompt.info,
        )

    def script(self, index: int) -> list[str]:
        _, file = self.choose(index)
        return [self.call.format(file=file), self.write_answer(f"{file}{self.problem(index).wanted}")]


class NoFile(ToolError):
    """There is no such file."""


class OpenFile(Tool):
    """Shows a file of the repository: its value and its symptom.

    Args:
        task: of the issues.
    """

    timeout_s = 5.0

    def __init__(self, task: Patches):
        if not isinstance(task, Patches):
            raise ValueError(f"this tool opens the files of task patches alone, not those of {type(task).__name__}")
        self.task = task
        self.prompt: Prompt | None = None

    def start(self, prompt: Prompt) -> OpenFile:
        fresh = OpenFile(self.task)
        fresh.prompt = prompt
        return fresh

    def run(self, file: str) -> str:  # type: ignore[override]
        """
        Open a file.

        Args:
            file: its name.
        """
        assert self.prompt is not None
        text = self.task.read_file(self.prompt, file)
        if not text:
            raise NoFile(file[:20])
        return text
