"""Watches gradients for silent data corruption: a flipped bit of an exponent makes one far greater than any before.

Of each gradient the greatest magnitude is computed on its stream; when the backward pass ends, all are read at once and
compared with what was usual. A corruption is found where the gradient is not finite, or, after some passes, more than 10⁴ times
the recent maximum of the same parameter. Smaller changes, and those that make a value smaller, are not found.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from torch_vnpu.errors import ErrCode, pta_error

__all__ = ["SilentDataCorruptionError", "disable", "enable", "is_enabled", "register_asd_hook", "set_asd_loss_scale"]

JUMP = 1e4  # times the recent maximum
WARM_UP = 5  # passes in which only values that are not finite count
_FADING = 0.99  # of the maximum, a pass
_STALE = 64  # passes that are kept when they never end


class SilentDataCorruptionError(RuntimeError):
    """A gradient that no computation without a fault is likely to have made."""


@dataclass
class _History:
    name: str
    passes: int = 0
    maximum: float = 0.0


_lock = threading.Lock()
_histories: Any = WeakTensorKeyDictionary()  # of weights
_pending: dict[int, list[tuple[_History, Tensor]]] = {}  # by backward pass
_hooks: list[Any] = []  # of enable(): handles to remove
_watched: Any = WeakTensorKeyDictionary()  # by enable()
_loss_scale = 1.0


def set_asd_loss_scale(loss_scale: float) -> None:
    """Tell by what the loss is multiplied (as by a GradScaler), so that a new scale is no jump.

    With a scale other than 1, gradients that are not finite are left to the scaler, which expects them.

    Raises:
        ValueError: it is not a positive finite number.
    """
    global _loss_scale
    if isinstance(loss_scale, bool) or not isinstance(loss_scale, int | float) or not 0 < loss_scale < math.inf:
        raise ValueError(f"the loss scale must be a positive number, not {loss_scale!r}" + pta_error(ErrCode.VALUE))
    _loss_scale = float(loss_scale)


def register_asd_hook(x: Tensor, weight: Tensor) -> None:
    """Watch the gradient of `x`, an activation, in its backward pass. What is usual is remembered for `weight`, which stays
    from pass to pass. Works whatever NPU_ASD_ENABLE says.

    Raises:
        ValueError: `x` has no gradient.
    """
    if not x.requires_grad:
        raise ValueError("register_asd_hook watches a gradient, but x does not require one" + pta_error(ErrCode.VALUE))
    x.register_hook(_watching(_history(weight, f"an activation {list(x.shape)} beside a weight {list(weight.shape)}")))


def enable() -> None:
    """Watch the gradients of parameters on npu, from the next time that the module which holds them is called. Idempotent.

    What no module that is called holds itself is not watched: a leaf without a module, a ParameterList.
    """
    if not _hooks:
        _hooks.append(torch.nn.modules.module.register_module_forward_pre_hook(_watch_parameters))


def disable() -> None:
    """Undo `enable`. Idempotent."""
    while _hooks:
        _hooks.pop().remove()
    _watched.clear()


def is_enabled() -> bool:
    """Whether `enable` is in effect."""
    return bool(_hooks)


def _watch_parameters(module: torch.nn.Module, _: Any) -> None:
    for name, parameter in module.named_parameters(recurse=False):
        if parameter.requires_grad and parameter.device.type == "npu" and parameter not in _watched:
            history = _history(parameter, f"{type(module).__name__}.{name} {list(parameter.shape)}")
            _watched[parameter] = True
            _hooks.append(parameter.register_hook(_watching(history)))


def _history(weight: Tensor, name: str) -> _History:
    with _lock:
        if weight not in _histories:
            _histories[weight] = {}
        return _histories[weight].setdefault(name, _History(name))


def _watching(history: _History) -> Callable[[Tensor], None]:
    def hook(gradient: Tensor) -> None:
        if not gradient.numel() or gradient.layout != torch.strided or not gradient.is_floating_point():
            return
        greatest = gradient.detach().abs().amax()
        current = torch._C._current_graph_task_id()
        with _lock:
            first = current not in _pending
            _pending.setdefault(current, []).append((history, greatest))
            for stale in [number for number in _pending if number < current - _STALE]:
                del _pending[stale]
        if first:
            torch.autograd.Variable._execution_engine.queue_callback(partial(_check, current))

    return hook


def _check(graph_task: int) -> None:
    with _lock:
        seen = _pending.pop(graph_task, [])
    for device in {greatest.device for _, greatest in seen}:
        here = [(history, greatest) for history, greatest in seen if greatest.device == device]
        values = torch.stack([greatest.double() for _, greatest in here]).tolist()
        for (history, _), value in zip(here, values, strict=True):
            _judge(history, value / _loss_scale)


def _judge(history: _History, value: float) -> None:
    if not math.isfinite(value):
        if _loss_scale == 1.0:
            raise _corruption(history, f"is {value}")
        return
    if history.passes >= WARM_UP and value > JUMP * history.maximum > 0:
        raise _corruption(history, f"reaches {value:.3g}, and {history.maximum:.3g} at most in recent passes")
    history.passes += 1
    history.maximum = max(value, _FADING * history.maximum)


def _corruption(history: _History, what: str) -> SilentDataCorruptionError:
    return SilentDataCorruptionError(
        f"the gradient of {history.name} {what}: a device may have computed wrong values. Go back to the last checkpoint, and "
        "repeat the step on another device to tell a fault from a diverging model" + pta_error(ErrCode.VALUE)
    )
