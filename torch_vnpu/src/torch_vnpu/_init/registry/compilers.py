"""Dynamo and Inductor: hooks that act when torch loads its compiler, which `import torch` does not."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import wrapt


class _Part:
    """A module of ours that needs torch's compiler, and what is to be done with it, which waits until it is whole.

    Whoever imports it before torch's compiler loads the latter by it, and so runs the hooks while it is half imported.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._whole = False
        self._waiting: list[Callable[[Any], None]] = []

    def loaded(self, module: Any) -> None:
        self._whole = True
        while self._waiting:
            self._waiting.pop(0)(module)

    def act(self, action: Callable[[Any], None]) -> None:
        """Import the module, if nobody does already, and act on it now or when that is done."""
        module = import_module(self.name)
        if self._whole:
            action(module)
        else:
            self._waiting.append(action)


_dynamo = _Part("torch_vnpu.compile.dynamo")
_inductor = _Part("torch_vnpu.compile.inductor")


def register_compilers() -> None:
    """Install the hooks. A module that is loaded already gets its part at once."""
    for part in (_dynamo, _inductor):
        wrapt.register_post_import_hook(part.loaded, part.name)
    for module, act in (
        ("torch._dynamo.device_interface", _interface),
        ("torch._dynamo.trace_rules", _rules),
        ("torch._dynamo.variables.torch", _constants),
        ("torch._dynamo.backends.registry", _backend),
        ("torch._dynamo", _substitutes),
        ("torch._inductor.codegen.cpp", _kernels),
    ):
        wrapt.register_post_import_hook(act, module)


def _interface(module: Any) -> None:
    # Dynamo asks for all interfaces once; what is registered before it does is kept.
    _dynamo.act(lambda dynamo: dynamo.register_interface())


def _rules(module: Any) -> None:
    _dynamo.act(lambda dynamo: dynamo.register_rules(module))


def _constants(module: Any) -> None:
    _dynamo.act(lambda dynamo: dynamo.register_constants(module))


def _substitutes(module: Any) -> None:
    _dynamo.act(lambda dynamo: dynamo.register_substitutes())


def _backend(module: Any) -> None:
    module.register_backend(name="npu", compiler_fn=_compile)


def _compile(graph: Any, inputs: Any, **options: Any) -> Any:
    from torch_vnpu.compile.dynamo import npu_backend

    return npu_backend(graph, inputs, **options)


def _kernels(module: Any) -> None:
    _inductor.act(lambda inductor: inductor.register())
