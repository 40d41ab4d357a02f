"""A kernel of torch's dispatcher as a place: `aten::add.Tensor/PrivateUse1`.

The dispatcher keeps the kernels of an operator and a key one upon the other and shows the topmost. A write registers a
function through `torch.library`; to uncover what lies beneath it, the registration is dropped. Nothing is ever taken
from others. torch is imported where such a place is made.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from unpatch.patches.errors import TargetNotFoundError, WriteRefusedError
from unpatch.patches.places import ABSENT, Place, Told


class Kernel(Told):
    """A kernel that somebody else registered, called like the operator; `where` says where it was registered."""

    def __init__(self, handle: Any, operator: str, key: str, where: str) -> None:
        self._handle = handle
        self._operator = operator
        self._key = key
        self.where = where

    @property
    def __signature__(self) -> inspect.Signature:
        """How the dispatcher calls a kernel written in Python: defaults are left out."""
        kinds = {False: inspect.Parameter.POSITIONAL_ONLY, True: inspect.Parameter.KEYWORD_ONLY}
        return inspect.Signature(
            [
                inspect.Parameter(
                    argument.name,
                    kinds[argument.kwarg_only],
                    default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
                )
                for argument in _schema(self._operator).arguments
            ]
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        core = torch._C
        args, kwargs = self._with_tensors(args, kwargs)
        own = core.DispatchKeySet(core._dispatch_key_parse(self._key))
        # The keys that the dispatcher would go on with: those of the arguments, from this kernel's downwards.
        keys = own
        for value in torch.utils._pytree.arg_tree_leaves(*args, **kwargs):
            if isinstance(value, torch.Tensor):
                keys = keys | core._dispatch_keys(value)
        keys = (keys - core._dispatch_tls_local_exclude_set()) | own
        keys = keys & (core._dispatch_keyset_full_after(core._dispatch_key_parse(self._key)) | own)
        if not core._dispatch_has_kernel_for_dispatch_key(self._operator, "ADInplaceOrView"):
            # Only a fallthrough is there, which a kernel that hands on to the next key would call.
            keys = keys.remove(core.DispatchKey.ADInplaceOrView)
        return self._handle.call_boxed(keys, *args, **kwargs)

    def _with_tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with a tensor of no dimension for each number that stands for a tensor, as in `x + 1`.

        A kernel written in Python is handed such a number bare, and one written in C++ does not take it.
        """
        wanted = _schema(self._operator).arguments
        tensors = {argument.name for argument in wanted if str(argument.type) in ("Tensor", "Optional[Tensor]")}
        converted = [
            _tensor(value) if argument.name in tensors else value for argument, value in zip(wanted, args, strict=False)
        ]
        named = {name: _tensor(value) if name in tensors else value for name, value in kwargs.items()}
        return (*converted, *args[len(converted) :]), named

    def __str__(self) -> str:
        return f"the kernel {self.where}"


class Registration(Place):
    """The kernel of an operator for one dispatch key."""

    deletable = False

    def __init__(self, operator: str, key: str) -> None:
        import torch

        self.operator = operator
        self.key = key
        self.family = ("kernel", operator, key)
        #: What lies here as far as we have seen, the lowest first: our functions with their libraries, others' kernels.
        self._seen: list[tuple[object, Any]] = []
        try:
            torch._C._dispatch_key_parse(key)
            torch._C._dispatch_has_kernel_for_dispatch_key(operator, key)
        except RuntimeError as error:
            raise TargetNotFoundError(f"target {str(self)!r}: {str(error).splitlines()[0]}") from error
        if torch._C._dispatch_is_alias_key(torch._C._dispatch_key_parse(key)):
            raise WriteRefusedError(
                f"target {str(self)!r}: {key} stands for several dispatch keys; name each that is meant, such as CPU"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registration) and self.family == other.family

    def __hash__(self) -> int:
        return hash(self.family)

    def __str__(self) -> str:
        return f"{self.operator}/{self.key}"

    def words(self) -> tuple[str, object, str]:
        return self.operator, self.key, "kernel"

    @property
    def schema(self) -> str:
        """The operator's signature, as torch writes it."""
        return str(_schema(self.operator))

    def read(self) -> object:
        import torch

        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(self.operator, self.key):
            return ABSENT
        handle = torch.library.get_kernel(self.operator, self.key)
        where = str(handle).partition("debug='")[2].rpartition("'")[0]
        ours = [value for value, library in self._seen if library is not None]
        if ours and __file__ in where:
            return ours[-1]
        for value, _ in reversed(self._seen):
            if isinstance(value, Kernel) and value.where == where:
                return value
        kernel = Kernel(handle, self.operator, self.key, where)
        self._seen.append((kernel, None))
        return kernel

    def put(self, value: object) -> None:
        heights = [height for height, (seen, _) in enumerate(self._seen) if seen is value]
        if value is ABSENT or heights:
            covering = self._seen[heights[-1] + 1 :] if heights else list(self._seen)
            del self._seen[len(self._seen) - len(covering) :]
            for _, library in reversed(covering):
                if library is not None:
                    library._destroy()
            return
        from torch.library import Library

        namespace, _, name = self.operator.partition("::")
        library = Library(namespace, "IMPL")
        try:
            with warnings.catch_warnings():
                # That a kernel is overridden is what was asked for.
                warnings.filterwarnings("ignore", r"(?s).*(Overriding a previously|Warning only once)")
                library.impl(name, value, self.key, allow_override=True)
        except BaseException:
            library._destroy()
            raise
        self._seen.append((value, library))

    def writer(self) -> str:
        return "torch's dispatcher"


def _schema(operator: str) -> Any:
    import torch

    name, _, overload = operator.partition(".")
    return torch._C._get_schema(name, overload)


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.get_default_dtype())
    return torch.tensor(value) if isinstance(value, bool | int | complex) else value
