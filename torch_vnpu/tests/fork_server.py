"""A script that imports once and then runs each snippet in a forked child: a clean interpreter in milliseconds.

Protocol: one JSON line a request, {"code", "env"}; one JSON line an answer, {"out", "err", "code"}.
"""

import json
import os
import sys
import tempfile
import traceback


def run(code: str, env: dict[str, str]) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
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
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return {
            "out": out.read().decode(errors="replace"),
            "err": err.read().decode(errors="replace"),
            "code": os.waitstatus_to_exitcode(status),
        }


if __name__ == "__main__":
    for module in sys.argv[1:]:
        __import__(module)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run(request["code"], request["env"])), flush=True)
