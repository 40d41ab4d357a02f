"""Which special methods of a class cannot be put back once they were written, although the attribute can.

CPython keeps special methods of a type in C slots besides its `__dict__`. Some names have two slots: `__getitem__` is that
of a sequence and that of a mapping. A type written in C fills one of them; assigning to the name fills both with the
generic function, and restoring the attribute leaves the second one filled, so that the type is another one than before:
`torch.Tensor` becomes a sequence for C code (pytorch issue 161886). `__new__` stays the generic function too, which
then refuses the arguments of `__init__` (cpython issue 49572).
"""

from __future__ import annotations

from types import WrapperDescriptorType

#: Names that stand for a slot of sequences and one of mappings.
_OF_TWO = frozenset({"__getitem__", "__setitem__", "__delitem__", "__len__"})
#: Names that stand for a slot of numbers and, by the name that follows, for one of sequences.
_OF_NUMBERS = {
    "__add__": "__add__",
    "__radd__": "__add__",
    "__iadd__": "__iadd__",
    "__mul__": "__mul__",
    "__rmul__": "__mul__",
    "__imul__": "__imul__",
}


def lasting(owner: type, name: str) -> str:
    """Why writing the special method `name` of `owner` lasts, in words; empty if it can be undone."""
    if name == "__new__":
        found = _found(owner, name)
        return (
            "" if found is None or _in_python(found) else _why(owner, name, "the constructor is a C slot of the type")
        )
    if name in _OF_TWO and isinstance(_found(owner, name), WrapperDescriptorType):
        return _why(owner, name, "the name stands for two C slots of the type")
    if name in _OF_NUMBERS:
        found = _found(owner, _OF_NUMBERS[name])
        # Of sequences only: a number keeps its slot.
        if isinstance(found, WrapperDescriptorType) and hasattr(found.__objclass__, "__getitem__"):
            return _why(owner, name, "the name stands for two C slots of the type")
    return ""


def _found(owner: type, name: str) -> object:
    for base in owner.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def _in_python(value: object) -> bool:
    return hasattr(getattr(value, "__func__", value), "__code__")


def _why(owner: type, name: str, what: str) -> str:
    return (
        f"{owner.__module__}.{owner.__qualname__}.{name} is implemented in C, and {what}: once written, neither assigning "
        "the original nor deleting brings the slots back"
    )
