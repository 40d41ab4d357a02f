"""Many checks in processes that may crash or hang: such an end is the outcome of the operator that was being checked.

A worker is asked through its standard input, a line a check, and answers with a line of JSON. A full pass keeps its answers
in a file of JSON lines and goes on from there when it is started again.
"""

import json
import os
import queue
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

SECONDS = 60.0  # for one operator with one dtype
START_SECONDS = 120.0
COMMAND: Sequence[str] = (sys.executable, "-m", "opinfo.worker")


class Ask(NamedTuple):
    """One check to make."""

    op: str
    dtype: str
    samples: int


class Worker:
    """A process that makes checks, and is replaced when it dies or hangs."""

    def __init__(self, environment: dict[str, str], command: Sequence[str] | None = None) -> None:
        self._command = command or COMMAND
        self._environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"} | environment
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, ask: Ask, seconds: float = SECONDS) -> dict[str, object]:
        """The outcome of a check, as `check.Outcome` has it; status `crash` or `timeout` where the process gave none."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(ask).encode() + b"\n")
        process.stdin.flush()
        line = self._read(seconds)
        if line:
            return json.loads(line)
        late = process.poll() is None and line is None
        self.close()
        status, reason = (
            ("timeout", f"no answer in {seconds:.0f} s") if late else ("crash", f"exit code {process.returncode}")
        )
        return {
            "op": ask.op,
            "dtype": ask.dtype,
            "status": status,
            "reason": reason,
            "samples": 0,
            "backward": 0,
            "rounded": 0,
        }

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            self._command,
            cwd=Path(__file__).parents[1],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        if not self._read(START_SECONDS):
            raise RuntimeError("opinfo: a worker process does not start; run `python -m opinfo.worker` to see why")
        return self._process

    def _read(self, seconds: float) -> bytes | None:
        """A line; nothing where the process ended; None where it is late."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        return self._process.stdout.readline()


def run(
    asks: Iterable[Ask], kept: Path, environment: dict[str, str], jobs: int, done: Callable[[int], None]
) -> list[dict]:
    """The outcomes of all `asks`, those already in the file `kept` included; `done` is told how many there are so far."""
    outcomes = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    made = {(outcome["op"], outcome["dtype"]) for outcome in outcomes}
    waiting: queue.SimpleQueue[Ask] = queue.SimpleQueue()
    for ask in asks:
        if (ask.op, ask.dtype) not in made:
            waiting.put(ask)
    lock = threading.Lock()
    done(len(outcomes))

    def work() -> None:
        worker = Worker(environment)
        try:
            while True:
                try:
                    ask = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = worker.ask(ask)
                with lock, kept.open("a") as file:
                    file.write(json.dumps(outcome) + "\n")
                    outcomes.append(outcome)
                    done(len(outcomes))
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
