"""Save an environment's state as plain data, and restore it into another instance of the same class.

Nothing of it is code: functions, classes and other constants are those of the environment that takes the state, and an
object only takes the attributes that were saved of one of its own class in the same place.
"""

from __future__ import annotations

import enum
import types
from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from mmrl.core.lazy_module import torch

LEAVES = (type(None), bool, int, float, str)
CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque"}
_MAKERS = {name: kind for kind, name in CONTAINERS.items()}
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_CONSTANTS = (*_CODE, EnvSpec, np.dtype)
_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class NotPlainError(TypeError):
    """The environment's state is not plain data, or another instance cannot take it."""


class Packer:
    """Converts an object to plain data. Objects that occur twice are stored once and shared again when restored."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no other object gets the identity of one that was seen

    def pack(self, value: Any, inside: bool = False) -> Any:
        """Plain data of a value; `inside` a container, where another instance may hold other objects.

        Raises:
            NotPlainError: there is something that is not data.
        """
        if type(value) in LEAVES:
            return value
        if isinstance(value, np.generic):
            return ["number", value.dtype.str, torch.from_numpy(np.array(value))]
        if isinstance(value, _CONSTANTS):
            return ["constant", _name(value)]
        if isinstance(value, enum.Enum):
            return ["enum", _name(type(value)), value.name]
        if id(value) in self._seen:
            return ["again", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return self._pack_new(value, inside)

    def _pack_new(self, value: Any, inside: bool) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            return ["array", value.dtype.str, torch.from_numpy(value.copy())]
        if isinstance(value, np.random.Generator):
            return ["generator", self.pack(value.bit_generator.state)]
        if type(value) in CONTAINERS:
            items = sorted(value) if isinstance(value, (set, frozenset)) else value
            limit = getattr(value, "maxlen", None)
            return [CONTAINERS[type(value)], [self.pack(item, True) for item in items], limit]
        if type(value) is dict:
            return ["dict", [[self.pack(key, True), self.pack(item, True)] for key, item in value.items()]]
        if isinstance(value, spaces.Space):
            return ["space", _name(type(value)), self.pack(vars(value).get("_np_random"))]
        if inside:
            raise NotPlainError(f"{type(value).__name__} in a container")
        if _is_physics(value):
            return ["physics", _name(type(value)), {name: self.pack(part) for name, part in _numbers(value).items()}]
        if isinstance(value, gymnasium.Env) or _has_only_attributes(value):
            return ["object", _name(type(value)), {name: self.pack(part) for name, part in vars(value).items()}]
        raise NotPlainError(f"{type(value).__name__} is not plain data")


class Unpacker:
    """Restores plain data into a live object, which supplies functions, classes and other constants."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def unpack(self, packed: Any, live: Any = None) -> Any:
        """The restored value; objects are the live ones with the saved attributes.

        Raises:
            NotPlainError: the live value is of another class than the saved one, or the data is none of `Packer`.
        """
        if type(packed) in LEAVES:
            return packed
        kind, *rest = packed
        if kind == "number":
            return _array(rest[1]).astype(rest[0])[()]
        if kind == "constant":
            return _same(live, rest[0], _name(live) if isinstance(live, _CONSTANTS) else type(live).__name__)
        if kind == "enum":
            return type(_same(live, rest[0], _name(type(live))))[rest[1]]
        if kind == "again":
            return self._values[rest[0]]
        place = len(self._values)
        self._values.append(live)  # objects that name themselves find this
        self._values[place] = value = self._unpack_new(kind, rest, live)
        return value

    def _unpack_new(self, kind: str, rest: list[Any], live: Any) -> Any:
        if kind == "array":
            return _array(rest[1]).astype(rest[0], copy=True)
        if kind == "generator":
            state = self.unpack(rest[0])
            if state["bit_generator"] not in _GENERATORS:
                raise NotPlainError(f"unknown random generator {state['bit_generator']!r}")
            generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
            generator.bit_generator.state = state
            return generator
        if kind in _MAKERS:
            live_items = (
                list(live) if isinstance(live, (list, tuple)) and len(live) == len(rest[0]) else [None] * len(rest[0])
            )
            items = [self.unpack(item, current) for item, current in zip(rest[0], live_items)]
            return deque(items, rest[1]) if kind == "deque" else _MAKERS[kind](items)
        if kind == "dict":
            current = live if isinstance(live, dict) else {}
            pairs = ((self.unpack(key), item) for key, item in rest[0])
            return {key: self.unpack(item, current.get(key)) for key, item in pairs}
        _same(live, rest[0], _name(type(live)))
        if kind == "space":
            live._np_random = self.unpack(rest[1])
        elif kind == "physics":
            for name, part in rest[1].items():
                _put_number(live, name, self.unpack(part))
        elif kind == "object":
            current = dict(vars(live))
            values = {name: self.unpack(part, current.get(name)) for name, part in rest[1].items()}
            vars(live).clear()
            vars(live).update(values)
        else:
            raise NotPlainError(f"unknown kind of data {kind!r}")
        return live


def _array(value: Any) -> np.ndarray:
    """Numbers of a state: a tensor, or the array that it is in a process that has not imported torch yet."""
    return value if isinstance(value, np.ndarray) else value.numpy()


def _same(live: Any, saved: str, here: str) -> Any:
    if saved != here:
        raise NotPlainError(f"{saved} was saved where a new environment has {here}")
    return live


def _name(value: Any) -> str:
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}/{getattr(value, '__qualname__', '')}"


def _has_only_attributes(value: Any) -> bool:
    """Whether an object is fully described by its attributes."""
    kind = type(value)
    plain = all(getattr(kind, name, None) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
    return plain and hasattr(value, "__dict__") and kind.__getstate__ is object.__getstate__ and not _has_slots(kind)


def _has_slots(kind: type) -> bool:
    return any(vars(base).get("__slots__") for base in kind.__mro__)


def _is_physics(value: Any) -> bool:
    """Whether a value is MuJoCo's model or data."""
    return type(value).__module__.startswith("mujoco") and type(value).__name__ in ("MjModel", "MjData")


def _numbers(struct: Any) -> dict[str, Any]:
    """MuJoCo's arrays of fixed size and the time; contacts and constraints are recomputed in each step."""
    import mujoco

    empty = mujoco.MjData(struct.model) if type(struct).__name__ == "MjData" else struct
    result: dict[str, Any] = {"time": struct.time} if hasattr(struct, "time") else {}
    for name in dir(struct):
        if name.startswith("_") or name in ("model",):
            continue
        part = getattr(struct, name)
        if isinstance(part, np.ndarray) and part.dtype.kind in "fiub" and getattr(empty, name).size:
            result[name] = part.copy()
    return result


def _put_number(struct: Any, name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        getattr(struct, name)[...] = value
    else:
        setattr(struct, name, value)
