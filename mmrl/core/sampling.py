"""Sampling parameters of actions, the annealing of the temperature over a completion, and guided decoding."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mmrl.core.installation.optional_packages import import_optional


@dataclass(frozen=True)
class Annealing:
    """Exploratory annealed decoding (EAD): a temperature that falls from token to token of a completion.

    tau_t = 1 for t < cutoff, else max(1 + max_temperature - exp(t / decay), min_temperature), in units of
    `sampling.temperature`; t counts the tokens of the completion from 0. Training scores at `sampling.temperature`
    alone, and `behavior_logprobs` are those of the annealed distribution: importance weights correct for it
    (`TruncatedImportanceSampling`). A schedule of `decay` lets it grow with the iterations. Source: Let it Calm:
    Exploratory Annealed Decoding for Verifiable Reinforcement Learning, 2025, arXiv:2510.05251.

    Args:
        max_temperature: of a first token without a cutoff.
        min_temperature: lower bound.
        cutoff: first tokens that are sampled at temperature 1.
        decay: tokens over which the exponential grows by a factor of e, the paper's d.
    """

    max_temperature: float = 1.2
    min_temperature: float = 0.1
    cutoff: int = 10
    decay: float = 100.0

    def __post_init__(self) -> None:
        if not (0 < self.min_temperature <= self.max_temperature < math.inf and self.cutoff >= 0 and self.decay > 0):
            raise ValueError(
                "sampling.annealing: need 0 < min_temperature <= max_temperature, cutoff >= 0 and decay > 0, got "
                f"{self.min_temperature}, {self.max_temperature}, {self.cutoff} and {self.decay}"
            )

    def __call__(self, position: int) -> float:
        if position < self.cutoff:
            return 1.0
        # beyond e^30 the lower bound holds for every temperature in use, and exp would overflow
        return max(1 + self.max_temperature - math.exp(min(position / self.decay, 30.0)), self.min_temperature)


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of actions. Recomputed log-probs use the same ones, so that the ratio starts at 1.

    `regex` and `json_schema` are guided decoding: at every token the ids that cannot lead to a match have probability
    0, and a completion that ends matches as a whole. One of them is given; `llguidance` reads it.
    """

    temperature: float = 1.0  # divides the logits; must be > 0
    top_k: int = 0  # 0 keeps all
    top_p: float = 1.0  # smallest set of choices with at least this mass
    min_p: float = 0.0  # choices at least this likely, as a share of the most likely one; 0 keeps all
    max_tokens: int = 64  # per completion; policies with a fixed number of choices ignore it
    stop: tuple[str, ...] = ()  # strings that end a completion, besides the end-of-sequence token
    decode: Literal["sample", "argmax", "mean"] = "sample"  # "mean": expectation over ordered choices (action bins)
    annealing: Annealing | None = None  # temperature by the position of a token; training scores without it
    regex: str | None = None  # regular expression, without look-around
    json_schema: dict[str, Any] | str | None = None  # JSON schema, as a mapping or as text; kept as text

    def __post_init__(self) -> None:
        if isinstance(self.annealing, Mapping):  # plain values, as files and messages give them
            object.__setattr__(self, "annealing", Annealing(**self.annealing))
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"sampling.temperature must be finite and > 0, got {self.temperature} (decode=argmax: 0)")
        if self.max_tokens < 1:
            raise ValueError(f"sampling.max_tokens must be at least 1, got {self.max_tokens}")
        if not (0 < self.top_p <= 1 and 0 <= self.min_p <= 1 and self.top_k >= 0):
            limits = f"top_p in (0, 1], sampling.min_p in [0, 1], sampling.top_k >= 0, got {self.top_p}, {self.min_p}"
            raise ValueError(f"sampling.{limits} and {self.top_k}")
        if isinstance(self.json_schema, Mapping):
            object.__setattr__(self, "json_schema", json.dumps(self.json_schema))
        if self.regex is not None or self.json_schema is not None:
            self._check_guide()

    @property
    def truncated(self) -> bool:
        """Whether some choices are cut off before drawing."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def temperature_at(self, position: int) -> float:
        """Return what the logits of a completion's token are divided by, at a position from 0."""
        return self.temperature * (1.0 if self.annealing is None else self.annealing(position))

    @property
    def guide(self) -> str | None:
        """The expression that completions match, as JSON text {"regex": ...} or {"json_schema": ...}; None for none."""
        if self.regex is not None:
            return json.dumps({"regex": self.regex})
        return None if self.json_schema is None else json.dumps({"json_schema": self.json_schema})

    def _check_guide(self) -> None:
        """Refuse an expression that is not one, that would not be enforced, or that stop strings would break off."""
        if self.regex == "":
            raise ValueError("sampling.regex is empty and matches no text; leave it out, or set it to null")
        if self.regex is not None and self.json_schema is not None:
            raise ValueError("sampling.regex and sampling.json_schema: give one of them; a completion matches one")
        if self.stop:
            raise ValueError(
                f"sampling.stop={list(self.stop)} would end a completion before it matches sampling.regex or "
                "sampling.json_schema, which say themselves where it ends; leave out sampling.stop"
            )
        if self.decode == "mean":
            raise ValueError("sampling.regex and sampling.json_schema are for text, which has no decode=mean")
        name = "json_schema" if self.regex is None else "regex"
        if problem := _find_problem(build_grammar(self.guide or "")):
            raise ValueError(f"sampling.{name}={getattr(self, name)!r}: {problem}")


def build_grammar(guide: str) -> str:
    """Convert the text of `Sampling.guide` to a grammar of llguidance; white space of JSON is free, as in vLLM.

    Raises:
        ValueError: llguidance is not installed, or the schema is no JSON.
    """
    LLMatcher = import_optional("llguidance", "a decode with sampling.regex or sampling.json_schema").LLMatcher
    expression = json.loads(guide)
    if "regex" in expression:
        return LLMatcher.grammar_from_regex(expression["regex"])
    try:
        schema = json.loads(expression["json_schema"])
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"sampling.json_schema={expression['json_schema']!r}: no JSON ({error})") from error
    if not isinstance(schema, dict):
        raise ValueError(f"sampling.json_schema must be an object such as {{type: object}}, got {schema!r}")
    return LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": True})


def _find_problem(grammar: str) -> str:
    """Return why llguidance cannot read a grammar, or what of it would not be enforced; empty if it enforces all."""
    from llguidance import LLMatcher

    _, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    return " ".join("; ".join(messages).split())[:500]
