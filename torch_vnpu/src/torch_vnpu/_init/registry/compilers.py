"""Dynamo and Inductor: hooks that act when torch loads its compiler, which `import torch` does not."""

from typing import Any

import wrapt


def register_compilers() -> None:
    """Install the hooks. A module that is loaded already gets its part at once."""
    for module, act in (
        ("torch._dynamo.device_interface", _interface),
        ("torch._dynamo.trace_rules", _rules),
        ("torch._dynamo.variables.torch", _constants),
        ("torch._dynamo.backends.registry", _backend),
        ("torch._dynamo", _substitutes),
        ("torch._inductor.codegen.cpp", _inductor),
    ):
        wrapt.register_post_import_hook(act, module)


def _interface(module: Any) -> None:
    # Dynamo asks for all interfaces once; what is registered before it does is kept.
    from torch_vnpu.compile import dynamo

    dynamo.register_interface()


def _rules(module: Any) -> None:
    from torch_vnpu.compile import dynamo

    dynamo.register_rules(module)


def _constants(module: Any) -> None:
    from torch_vnpu.compile import dynamo

    dynamo.register_constants(module)


def _substitutes(module: Any) -> None:
    from torch_vnpu.compile import dynamo

    dynamo.register_substitutes()


def _backend(module: Any) -> None:
    module.register_backend(name="npu", compiler_fn=_compile)


def _compile(graph: Any, inputs: Any, **options: Any) -> Any:
    from torch_vnpu.compile.dynamo import npu_backend

    return npu_backend(graph, inputs, **options)


def _inductor(module: Any) -> None:
    from torch_vnpu.compile import inductor

    inductor.register()
