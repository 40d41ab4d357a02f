"""A script that imports once and then runs each snippet in a forked child: a clean interpreter in milliseconds.

Protocol: one JSON line a request, {"code", "env", "seconds"}; one JSON line an answer, {"out", "err", "code"}. A child that
takes longer is killed, with the processes that it has started, and its code is null.
"""

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback


def run(code: str, env: dict[str, str], seconds: float) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.stdout.reconfigure(line_buffering=True)  # what it printed is there when it is killed
            os.environ.update(env)
            status = 0
            try:
                exec(compile(code, "<snippet>", "exec"), {"__name__": "__main__"})
            except SystemExit:
                raise  # the child ends as interpreters end
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        ended = False
        try:
            ended = _ends(child, seconds)
        finally:  # also where the server is interrupted
            if not ended:
                _kill(child)
            _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return {
            "out": out.read().decode(errors="replace"),
            "err": err.read().decode(errors="replace"),
            "code": os.waitstatus_to_exitcode(status) if ended else None,
        }


def _ends(child: int, seconds: float) -> bool:
    ended = os.pidfd_open(child)
    try:
        return bool(select.select([ended], [], [], seconds)[0])
    finally:
        os.close(ended)


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)  # it may not have its group yet
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    for module in sys.argv[1:]:
        __import__(module)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run(**request)), flush=True)
