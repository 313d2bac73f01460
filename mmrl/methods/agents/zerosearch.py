"""ZeroSearch: search with a simulated retriever, whose share of noisy documents grows during training.

ZeroSearch: Incentivize the Search Capability of LLMs without Searching, 2025, arXiv:2505.04588.

- share of noisy documents by iteration: `NoiseCurve`
- the retriever as a tool: `SimulatedSearch`, which asks a `DocumentWriter` for useful or noisy documents
- a language model as the writer: `ModelWriter`
- reward: `mmrl.rewards.answers.token_f1.token_f1`
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mmrl.core.errors import check_at_least, check_interval, check_positive
from mmrl.core.messages import join_contents
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from mmrl.files.patterns import fill_template
from mmrl.rewards.judges.client import NoAnswer, PassingError, ServerConnection
from mmrl.schedules.base import Schedule
from mmrl.tools.base import Tool


@dataclass(frozen=True)
class NoiseCurve(Schedule):
    """p_i = p_s + (b^(i / m) - 1) / (b - 1) * (p_e - p_s) for i < m, and p_e from iteration m on.

    Source: ZeroSearch, 2025, section 3.4, arXiv:2505.04588.

    Args:
        iterations: m, after which the share is `end`.
        start: p_s.
        end: p_e.
        base: b; above 1 the share grows slowly at first.
    """

    iterations: int
    start: float = 0.0
    end: float = 0.5
    base: float = 4.0

    def __post_init__(self) -> None:
        check_at_least(1, "NoiseCurve:", iterations=self.iterations)
        check_interval("NoiseCurve:", "[0, 1]", start=self.start, end=self.end)
        check_positive("NoiseCurve:", base=self.base)
        if self.base == 1:
            raise ValueError("NoiseCurve: base=1 divides by zero; take mmrl.schedules.Linear for a straight line")

    def __call__(self, iteration: int) -> float:
        progress = min(iteration / self.iterations, 1.0)
        return self.start + (self.base**progress - 1) / (self.base - 1) * (self.end - self.start)


@runtime_checkable
class DocumentWriter(Protocol):
    """Writes what a simulated search returns."""

    def write(self, query: str, prompt: Prompt, useful: bool, seed: int) -> str:
        """Write documents for a query.

        Args:
            query: of the policy.
            prompt: the problem that the policy searches for, with its answer.
            useful: whether the documents shall help to answer it.
            seed: of the random draws.
        """


class SimulatedSearch(Tool):
    """Search whose documents are written: noisy ones for a share of the calls, useful ones for the others.

    A draw depends on the seed, the problem, the query and the number of the call in its episode, so that a second
    search with the same query may get other documents. A call that is noisy at a share is noisy at every larger one.

    Args:
        writer: of the documents.
        noise: share of the calls with noisy documents; a `NoiseCurve` in its place is the paper's schedule.
        seed: of the draws.
        timeout_s: time limit of a call.
        max_chars: of the documents of a call; longer ones are truncated.
    """

    def __init__(
        self, writer: DocumentWriter, noise: float = 0.5, seed: int = 0, timeout_s: float = 120.0, max_chars: int = 2000
    ):
        check_at_least(1, "rollout.tools:", max_chars=max_chars)
        check_positive("rollout.tools:", timeout_s=timeout_s)
        self.writer, self.noise, self.seed = writer, noise, seed
        self.timeout_s, self.max_chars = timeout_s, max_chars
        self.prompt, self.calls = Prompt(""), 0

    @property
    def noise(self) -> float:
        return self._noise

    @noise.setter
    def noise(self, value: float) -> None:
        check_interval("rollout.tools:", "[0, 1]", noise=value)
        self._noise = value

    def start(self, prompt: Prompt) -> SimulatedSearch:
        tool = copy.copy(self)
        tool.prompt, tool.calls = prompt, 0
        return tool

    def run(self, query: str) -> str:  # type: ignore[override]
        """
        Search for documents.

        Args:
            query: what the documents should be about.
        """
        self.calls += 1
        rng = derive_rng("simulated search", self.seed, self.prompt.key, query, self.calls)
        useful = bool(rng.random() >= self.noise)
        return self.writer.write(query, self.prompt, useful, int(rng.integers(2**31)))


WRITER_PROMPT = (
    "You are a search engine. Write {documents} documents of about 30 words each for the query below. A user asked it "
    "in order to answer this question: {question}\nThe right answer is: {answer}\nThe documents must be {kind} for the "
    "user.\n\nQuery: {query}\n{kind} documents:"
)
KINDS = {True: "useful", False: "noisy"}


class ModelWriter(ServerConnection):
    """Language model behind POST URL/chat/completions of OpenAI's interface that writes the documents.

    The model reads the query, the question, its answer and which kind of documents it shall write. A server that does
    not answer is an error of the tool.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        documents: to write for a call.
        template: of the request, with {documents}, {question}, {answer}, {kind} and {query}.
        temperature: of the model's sampling.
        max_tokens: of all documents.
        connection: further options of `ServerConnection`: max_requests, timeout_s, retries, backoff_s, key_variable.
    """

    place = "rollout.tools.search.writer"

    def __init__(
        self,
        url: str,
        model: str,
        documents: int = 5,
        template: str = WRITER_PROMPT,
        temperature: float = 0.8,
        max_tokens: int = 512,
        **connection: Any,
    ):
        if not model or not url.startswith(("http://", "https://")):
            raise ValueError(
                f"the model that writes documents needs {self.place}.url=http://HOST:PORT/v1 and "
                f"{self.place}.model=NAME, got url={url!r} and model={model!r}"
            )
        check_at_least(0, self.place, temperature=temperature)
        check_at_least(1, self.place, documents=documents, max_tokens=max_tokens)
        if lacks := [f"{{{name}}}" for name in ("kind", "query") if f"{{{name}}}" not in template]:
            raise ValueError(f"{self.place}.template lacks {', '.join(lacks)}; write it where the value shall stand")
        super().__init__(url, **connection)
        self.model, self.documents, self.template = model, documents, template
        self.temperature, self.max_tokens = temperature, max_tokens

    def write(self, query: str, prompt: Prompt, useful: bool, seed: int) -> str:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": self._write_request(query, prompt, useful)}],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": seed,
        }
        (text,) = self.client.ask_all("/chat/completions", [body], _read_text, Counter())
        if isinstance(text, NoAnswer):
            raise OSError(f"the model that writes documents gave none: {text.reason}")
        return text

    def _write_request(self, query: str, prompt: Prompt, useful: bool) -> str:
        values = {
            "documents": str(self.documents),
            "question": join_contents(prompt.messages),
            "answer": str(prompt.answer),
            "kind": KINDS[useful],
            "query": query,
        }
        return fill_template(self.template, **values)


def _read_text(number: int, answer: Any) -> str:
    try:
        return str(answer["choices"][0]["message"]["content"] or "")
    except (LookupError, TypeError) as error:
        raise PassingError(f"answered in another form: {str(answer)[:200]}") from error
