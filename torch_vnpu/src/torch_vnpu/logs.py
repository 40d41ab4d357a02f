"""Logs of what the device does, on stderr: `TORCH_NPU_LOGS=op_plugin,dispatch`, `TORCH_NPU_LOGS_FILTER=+keep,-drop`.

| name | prints |
| --- | --- |
| `op_plugin` | each kernel as it is called |
| `dispatch` | each task as it enters a stream's queue and as it leaves it |
| `env` | each environment variable that is read during the import, once (`_init/environment_log.py`) |

`+name` also prints what is for debugging: when each kernel has ended, and the thread. `-name` prints errors only, that is no
line about a kernel. The filter has words: a line is printed where it contains one of those with `+` (or without a sign), if
there are any, and none of those with `-`.
"""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

__all__ = ["NAMES", "Settings", "enabled", "parse", "start"]

NAMES = ("op_plugin", "dispatch", "env")
_LEVELS = {"+": logging.DEBUG, "-": logging.ERROR}


class Settings(NamedTuple):
    """What is printed: the level of each name, the words of which a line has one, the words of which it has none."""

    levels: dict[str, int]
    keep: tuple[str, ...]
    drop: tuple[str, ...]

    def passes(self, line: str) -> bool:
        """Whether the filter lets the line through."""
        wanted = not self.keep or any(word in line for word in self.keep)
        return wanted and not any(word in line for word in self.drop)


def parse(logs: str, filter: str = "") -> Settings:
    """Read the two variables.

    Raises:
        ValueError: a log of that name does not exist, or a sign stands alone.
    """
    levels = {}
    for sign, name in _signed(logs, "TORCH_NPU_LOGS"):
        if name not in NAMES:
            raise ValueError(f"TORCH_NPU_LOGS names '{name}', which is none of the logs: {', '.join(NAMES)}")
        levels[name] = _LEVELS.get(sign, logging.INFO)
    words = list(_signed(filter, "TORCH_NPU_LOGS_FILTER"))
    return Settings(
        levels,
        tuple(word for sign, word in words if sign != "-"),
        tuple(word for sign, word in words if sign == "-"),
    )


def _signed(text: str, variable: str) -> Iterator[tuple[str, str]]:
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        sign = entry[0] if entry[0] in "+-" else ""
        if sign == entry:
            raise ValueError(f"{variable} is '{text}': '{sign}' must stand before a name")
        yield sign, entry.removeprefix(sign)


class _Stderr(logging.StreamHandler):
    """Writes to what `sys.stderr` is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


def _logger(name: str, settings: Settings) -> logging.Logger:
    """A logger of its own for each time that a log is switched on, so that none changes another's level or filter."""
    logger = logging.Logger(f"torch_vnpu.{name}", settings.levels[name])
    handler = _Stderr()
    handler.setFormatter(logging.Formatter(f"[{name}] %(message)s"))
    handler.addFilter(lambda record: settings.passes(record.getMessage()))
    logger.addHandler(handler)
    return logger


def start(settings: Settings) -> list[int]:
    """Listen to the device's events, for the logs of kernels that print something. Returns the ids of the listeners."""
    from torch_vnpu import _C

    listeners = []
    for name, listener in (("op_plugin", _op_plugin), ("dispatch", _dispatch)):
        if name in settings.levels:
            logger = _logger(name, settings)
            kinds = [kind for kind, level in _KINDS[name] if logger.isEnabledFor(level)]
            if kinds:
                listeners.append(_C.subscribe(partial(listener, logger), kinds))
    return listeners


_KINDS = {
    "op_plugin": (("launch", logging.INFO), ("complete", logging.DEBUG)),
    "dispatch": (("launch", logging.INFO), ("complete", logging.INFO)),
}


def _op_plugin(
    logger: logging.Logger, kind: str, device: int, stream: int, name: str, pointer: int, bytes: int, sequence: int
) -> None:
    if kind == "launch":
        logger.info("%s npu:%d stream %d", name, device, stream)
    else:
        logger.debug("%s npu:%d stream %d has ended", name, device, stream)


def _dispatch(
    logger: logging.Logger, kind: str, device: int, stream: int, name: str, pointer: int, bytes: int, sequence: int
) -> None:
    what = "WriteQueue: write success" if kind == "launch" else "ReadQueue: read success"
    line = f"{what}, device {device}, stream {stream}, index {sequence}, {name}"
    if logger.isEnabledFor(logging.DEBUG):
        line += f", thread {threading.get_native_id()}"
    logger.info(line)


@contextmanager
def enabled(logs: str, filter: str = "") -> Iterator[None]:
    """Print for a while, beside what the environment asks for.

    Raises:
        ValueError: as `parse`, and for `env`, which is a log of the import.
    """
    from torch_vnpu import _C

    settings = parse(logs, filter)
    if "env" in settings.levels:
        raise ValueError("the log 'env' is one of the import: set TORCH_NPU_LOGS=env before it")
    listeners = start(settings)
    try:
        yield
    finally:
        for listener in listeners:
            _C.unsubscribe(listener)
