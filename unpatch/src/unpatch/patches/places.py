"""What a target names: a place that can be read, written and put back, an attribute or an entry of a mapping.

`unpatch.patches.stack` keeps the writes on a place and knows no kind of place; `unpatch.patches.targets` finds a place
from its text; a kernel of torch's dispatcher is a third kind, in `unpatch.patches.registrations`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, MutableMapping
from types import ModuleType
from typing import Any, Final

from unpatch.patches import slots
from unpatch.patches.errors import WriteRefusedError

#: In the place of a value: nothing is there, not even `None`.
ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda self: "<absent>"})()

#: Where a write would take effect, but not where it is seen and undone.
_COMPUTED = frozenset({"__class__", "__dict__"})
_COMPUTED_OF_CLASSES = frozenset({"__name__", "__qualname__", "__bases__", "__mro__"})


class Told:
    """A value that stands for something that is no object of Python, and says in words what (`str`)."""


class Place(ABC):
    """Somewhere a value lies, or could lie. Two that are equal are the same place."""

    #: Places of one family may rest on each other: the method of a class, and the one that it inherits.
    family: Hashable
    #: Whether what is there can be taken away, not only covered.
    deletable = True

    @abstractmethod
    def __str__(self) -> str:
        """The place as messages name it."""

    @abstractmethod
    def words(self) -> tuple[str, object, str]:
        """For messages: what holds the place, its name there, and what such a thing is called."""

    @abstractmethod
    def read(self) -> object:
        """The very object that lies here, or ABSENT."""

    @abstractmethod
    def put(self, value: object) -> None:
        """Let `value` lie here, or nothing (ABSENT). May raise anything where that is impossible."""

    def refuse(self) -> None:  # noqa: B027  # most places take any write
        """Raise WriteRefusedError where a write would do something else than write."""

    def lasting(self) -> str:
        """Why what a write does here cannot be undone; empty if it can."""
        return ""

    def inherited(self) -> object:
        """What is used here while nothing lies here itself, or ABSENT."""
        return ABSENT

    def computed(self) -> object:
        """What plain access gives where nothing lies here and nothing is inherited, or ABSENT."""
        return ABSENT

    def shown(self, value: object) -> object:
        """What plain access gives when `value` lies here."""
        return value

    def writer(self) -> str:
        """Who keeps a write from taking effect, for an error message."""
        return "something"


class Attribute(Place):
    """An attribute of a module or a class."""

    def __init__(self, parent: ModuleType | type, name: str) -> None:
        self.parent = parent
        self.name = name
        self.family = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attribute) and self.parent is other.parent and self.name == other.name

    def __hash__(self) -> int:
        return hash((id(self.parent), self.name))

    def __str__(self) -> str:
        return f"{self.words()[0]}.{self.name}"

    def words(self) -> tuple[str, object, str]:
        parent = self.parent
        holder = who(parent) if isinstance(parent, type) else str(getattr(parent, "__name__", parent))
        return holder, self.name, "attribute"

    def read(self) -> object:
        return self.parent.__dict__.get(self.name, ABSENT)

    def inherited(self) -> object:
        if isinstance(self.parent, type):
            for base in self.parent.__mro__[1:]:
                if self.name in base.__dict__:
                    return base.__dict__[self.name]
        return ABSENT

    def computed(self) -> object:
        return getattr(self.parent, self.name, ABSENT)  # a module's `__getattr__`, a metaclass

    def put(self, value: object) -> None:
        if value is ABSENT:
            delattr(self.parent, self.name)
        else:
            setattr(self.parent, self.name, value)

    def refuse(self) -> None:
        """A property of a module's type or of a metaclass would take the value itself and act on it."""
        if self.name in _COMPUTED or (isinstance(self.parent, type) and self.name in _COMPUTED_OF_CLASSES):
            raise WriteRefusedError(f"{self} cannot be written: the interpreter keeps it outside of `__dict__`")
        for kind in type.mro(type(self.parent)):
            if kind not in (type, ModuleType, object) and hasattr(kind.__dict__.get(self.name), "__set__"):
                raise WriteRefusedError(f"{self} cannot be written: it is computed by a property of {who(kind)}")

    def lasting(self) -> str:
        return slots.lasting(self.parent, self.name) if isinstance(self.parent, type) else ""

    def shown(self, value: object) -> object:
        if isinstance(self.parent, type) and isinstance(value, staticmethod | classmethod):
            return value.__func__
        return value

    def writer(self) -> str:
        return who(type(self.parent))


class Entry(Place):
    """An entry of a mapping, such as a registry that a library keeps."""

    def __init__(self, container: MutableMapping[Any, Any], key: Hashable, text: str) -> None:
        self.container = container
        self.key = key
        self.family = ("entry", id(container))
        self._text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self.container is other.container and self.key == other.key

    def __hash__(self) -> int:
        return hash((id(self.container), self.key))

    def __str__(self) -> str:
        return self._text

    def words(self) -> tuple[str, object, str]:
        return self._text.rpartition("[")[0], self.key, "entry"

    def read(self) -> object:
        return self.container.get(self.key, ABSENT)

    def put(self, value: object) -> None:
        if value is ABSENT:
            del self.container[self.key]
        else:
            self.container[self.key] = value

    def refuse(self) -> None:
        if self.read() is not self.read():
            raise WriteRefusedError(
                f"{self} cannot be written: {self.writer()} gives another object at each look, so that nobody could "
                "tell later who has written it"
            )

    def writer(self) -> str:
        return who(type(self.container))


def who(value: object) -> str:
    """Name a value for an error message: `module.qualname` for functions and classes, else its type."""
    if value is ABSENT:
        return "nothing (it was deleted)"
    module = name = None
    with contextlib.suppress(Exception):  # its own `__getattr__` may fail
        if isinstance(value, Told):
            return str(value)
        value = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        return f"{module}.{name}"
    if isinstance(name, str) and not isinstance(value, type):
        return name  # a method of a C type: `_TensorBase.add`
    return f"an object of type {type(value).__module__}.{type(value).__qualname__}"
