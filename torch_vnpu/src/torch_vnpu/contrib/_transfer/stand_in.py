"""A class that stands in for one written in C, whose own making of objects cannot be changed.

Calling it translates the device and makes an object of the real class, which is the only class that such objects ever have. In
`isinstance`, `issubclass`, `==` and as a key it is the real class; only `is` tells them apart.
"""

from typing import Any

from torch_vnpu.contrib._transfer import translate


class _StandIn(type):
    real: type
    keyword: str

    def __call__(cls, *arguments: Any, **settings: Any) -> Any:
        if arguments:
            arguments = (translate.device(arguments[0]), *arguments[1:])
        elif cls.keyword in settings:
            settings[cls.keyword] = translate.device(settings[cls.keyword])
        return cls.real(*arguments, **settings)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.real

    def __hash__(cls) -> int:
        return hash(cls.real)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.real, name)

    def __repr__(cls) -> str:
        return repr(cls.real)


def stand_in(real: type, keyword: str) -> type:
    """A stand-in for `real`, whose first argument, named `keyword`, is a device."""
    names = {"real": real, "keyword": keyword, "__module__": real.__module__, "__doc__": real.__doc__}
    return _StandIn(real.__name__, (), names)
