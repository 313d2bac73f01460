"""Tools with typed parameters, and requests that need them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

VALUES: Mapping[str, tuple[Any, ...]] = {
    "town": ("Lima", "Oslo", "Rome", "Kyiv", "Bern", "Cairo", "Quito", "Seoul", "Paris", "Delhi", "Tunis", "Accra"),
    "person": ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jun", "Kai", "Lea", "Mia", "Noor"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "time": tuple(f"{hour:02}:{minute:02}" for hour in range(6, 23) for minute in (0, 15, 30, 45)),
    "artist": ("Bach", "Verdi", "Sade", "Prince", "Adele", "Fela", "Cesaria", "Miles"),
    "film": ("Alien", "Amelie", "Ran", "Heat", "Solaris", "Jaws", "Psycho", "Rocky"),
    "word": ("bread", "river", "stone", "cloud", "light", "friend", "winter", "garden"),
    "language": ("French", "Greek", "Hindi", "Korean", "Polish", "Swahili"),
    "currency": ("EUR", "USD", "JPY", "KES", "PEN", "CHF"),
    "unit": ("celsius", "fahrenheit"),
    "room": ("kitchen", "hall", "attic", "cellar", "office", "garage"),
    "text": ("I am late", "call me", "see you soon", "thank you", "good luck"),
    "few": tuple(range(1, 10)),
    "many": tuple(range(5, 100, 5)),
    "amount": (2.5, 10, 19.99, 40, 120, 75.5, 300),
    "truth": (True, False),
}
TYPES: Mapping[str, str] = {"few": "integer", "many": "integer", "amount": "number", "truth": "boolean"}


@dataclass(frozen=True)
class ToolSpec:
    """A tool: what it does, the kind of each parameter's values, and how a request asks for it.

    `asks` are requests with the required parameters; `options` are phrases for optional ones, which follow.
    """

    name: str
    text: str
    parameters: tuple[tuple[str, str], ...]
    asks: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()

    def schema(self) -> dict[str, Any]:
        """The tool as a JSON schema, as chat templates show it."""
        optional = {name for name, _ in self.options}
        properties: dict[str, Any] = {}
        for name, kind in self.parameters:
            properties[name] = {"type": TYPES.get(kind, "string")}
            if kind == "unit":
                properties[name]["enum"] = list(VALUES[kind])
        required = [name for name, _ in self.parameters if name not in optional]
        body = {"type": "object", "properties": properties, "required": required}
        return {"name": self.name, "description": self.text, "parameters": body}

    def signature(self) -> str:
        """The tool as one line: weather(city: string, unit?: string)."""
        optional = {name for name, _ in self.options}
        parts = [f"{n}{'?' if n in optional else ''}: {TYPES.get(kind, 'string')}" for n, kind in self.parameters]
        return f"{self.name}({', '.join(parts)})"


TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "weather",
        "Weather forecast of a city.",
        (("city", "town"), ("day", "day"), ("unit", "unit")),
        ("What is the weather in {city}", "Will it rain in {city}"),
        (("day", " on {day}"), ("unit", " in {unit}")),
    ),
    ToolSpec(
        "book_table",
        "Book a table in a restaurant.",
        (("city", "town"), ("people", "few"), ("time", "time")),
        ("A table for {people} in {city}", "Reserve a table in {city} for {people} people"),
        (("time", " at {time}"),),
    ),
    ToolSpec(
        "play_music",
        "Play music of an artist.",
        (("artist", "artist"), ("volume", "many")),
        ("Play {artist}", "Put on music by {artist}"),
        (("volume", " at volume {volume}"),),
    ),
    ToolSpec(
        "set_alarm",
        "Set an alarm.",
        (("time", "time"), ("day", "day")),
        ("Wake me at {time}", "An alarm at {time}"),
        (("day", " on {day}"),),
    ),
    ToolSpec(
        "send_message",
        "Send a text message.",
        (("person", "person"), ("text", "text")),
        ("Tell {person}: {text}", "Message {person} with the text {text}"),
    ),
    ToolSpec(
        "convert",
        "Convert an amount of money.",
        (("amount", "amount"), ("to", "currency")),
        ("How much is {amount} dollars in {to}", "Change {amount} dollars to {to}"),
    ),
    ToolSpec(
        "find_flight",
        "Search flights.",
        (("start", "town"), ("end", "town"), ("day", "day")),
        ("Fly from {start} to {end}", "A flight to {end} from {start}"),
        (("day", " on {day}"),),
    ),
    ToolSpec(
        "set_light",
        "Switch a light.",
        (("room", "room"), ("on", "truth")),
        ("Set the light of the {room} to {on}", "Light in the {room}: {on}"),
    ),
    ToolSpec(
        "add_event",
        "Add an event to the calendar.",
        (("person", "person"), ("day", "day"), ("time", "time")),
        ("I meet {person} on {day}", "Note a meeting with {person} on {day}"),
        (("time", " at {time}"),),
    ),
    ToolSpec(
        "buy_ticket",
        "Buy tickets for a film.",
        (("film", "film"), ("seats", "few"), ("day", "day")),
        ("{seats} seats for {film}", "Tickets for {film}, {seats} of them"),
        (("day", " on {day}"),),
    ),
    ToolSpec(
        "translate",
        "Translate a word.",
        (("word", "word"), ("language", "language")),
        ("What is {word} in {language}", "Say {word} in {language}"),
    ),
    ToolSpec(
        "start_timer",
        "Start a timer.",
        (("minutes", "many"),),
        ("A timer of {minutes} minutes", "Count down {minutes} minutes"),
    ),
)


def draw_request(rng: np.random.Generator, tool: ToolSpec) -> tuple[str, dict[str, Any]]:
    """Draw a request for a tool, and the call that answers it; optional parameters stand in half of them."""
    options = [option for option in tool.options if rng.random() < 0.5]
    optional = {name for name, _ in tool.options} - {name for name, _ in options}
    arguments: dict[str, Any] = {}
    for name, kind in tool.parameters:
        if name not in optional:
            values = [value for value in VALUES[kind] if value not in arguments.values()]
            arguments[name] = values[int(rng.integers(len(values)))]
    text = tool.asks[int(rng.integers(len(tool.asks)))] + "".join(phrase for _, phrase in options)
    words = {k: ("on" if v else "off") if isinstance(v, bool) else v for k, v in arguments.items()}
    return text.format(**words), {"name": tool.name, "arguments": arguments}


def show_tools(tools: tuple[ToolSpec, ...], style: str) -> list[str]:
    """List tools, one line each, as signatures or as JSON schemas."""
    return [tool.signature() if style == "signatures" else json.dumps(tool.schema()) for tool in tools]
