"""CUDA's names, carried over to npu: declared patches that nothing applies until somebody asks for them.

The writes are few kinds, each in a module of its own: what torch.cuda offers becomes what torch.npu offers; the classes that
make a device out of a text are stood in for; functions written in C that read a device themselves get it translated; and what
torch keeps beside (scripting, compiling, loading, process groups, profiling) is told of it.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from unpatch.patches import Origin, PatchManager

GROUPS = ("devices", "cuda", "tensors", "amp", "modules", "loading", "distributed", "profiler", "scripting", "compile")
_ON_DEMAND = "compile"  # what it writes exists only once torch._dynamo is loaded

ORIGIN = Origin(introduced="torch_vnpu 0.1.0")
SWITCHED_ON = "never: it exists to be switched on"
BELONGS = "never: it belongs to the patches above"

manager = PatchManager("transfer_to_npu", order=GROUPS)
_lock = threading.RLock()
_active = False
_asked = False  # by `activate`: what holds outside of contexts
_contexts = 0
_watching = False


def activate() -> None:
    """Redirect CUDA to npu in this process. Idempotent, and it outlasts the contexts of `cuda_on_npu` that it is called in.

    Raises:
        unpatch.patches.PatchError: a patch cannot be applied; none is left behind.
    """
    global _asked
    with _lock:
        _apply()
        _asked = True


def _apply() -> None:
    global _active
    with _lock:
        if _active:
            return
        try:
            for group in GROUPS:
                if group != _ON_DEMAND:
                    manager.apply_group(group)
            _active = True
            _watch_dynamo()
        except BaseException:
            _active = False
            manager.revert_all()
            raise


def deactivate() -> None:
    """Put back what `activate` replaced, in contexts of `cuda_on_npu` too. Tensors stay where they are, and so does what others
    have copied meanwhile.

    Raises:
        unpatch.patches.NotRevertibleError: somebody else has written one of the targets since; the others are put back.
    """
    global _active, _asked
    with _lock:
        _asked = False
        if not _active:
            return
        from torch_vnpu.contrib._transfer import compile_patches

        _active = False
        try:
            manager.revert_all()
        finally:
            compile_patches.forget_names()


def is_active() -> bool:
    """Whether CUDA is redirected to npu now."""
    return _active


@contextmanager
def cuda_on_npu() -> Iterator[None]:
    """Context in which CUDA is redirected to npu, in all threads.

    It ends with the last of the contexts, in whatever threads and order these are left, unless `activate` has been called.
    """
    global _contexts
    with _lock:
        _apply()
        _contexts += 1
    try:
        yield
    finally:
        with _lock:
            _contexts -= 1
            if not _contexts and not _asked:
                deactivate()


def _watch_dynamo() -> None:
    """Have the patches of torch._dynamo applied now, or when it is loaded."""
    global _watching
    if "torch._dynamo" in sys.modules:
        _patch_dynamo()
    elif not _watching:
        from wrapt import register_post_import_hook

        _watching = True
        register_post_import_hook(_on_dynamo, "torch._dynamo")


def _on_dynamo(module: object) -> None:
    global _watching
    with _lock:
        _watching = False
        if _active:
            _patch_dynamo()


def _patch_dynamo() -> None:
    from torch_vnpu.contrib._transfer import compile_patches

    compile_patches.restore_methods()
    compile_patches.declare_tables()
    manager.apply_group(_ON_DEMAND)
    compile_patches.forget_names()


manager.discover(__name__)  # declares them; the modules need what stands above
