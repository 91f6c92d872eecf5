"""Code that runs in a process of its own, which is forked from one that has loaded Millstream already.

It runs as `python -c` runs it, from an empty `__main__` to the end of its interpreter, without the half second that
the imports take. A test of what is imported, or of the environment, needs a new interpreter: `loaders.samples.ran`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import types
from functools import cache
from pathlib import Path

OTHERS = {"torch", "jax", "mlx", "ray", "huggingface", "tiktoken", "sentencepiece", "gigatoken"}


def run_script(code: str, *arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own; a hang is an error."""
    command = ["-c", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        asked = [textwrap.dedent(code), command, os.getcwd(), dict(os.environ), str(out), str(err)]  # noqa: PTH109
        child = _answer(asked, timeout)
        answers = _server().stdout
        assert answers is not None
        if not select.select([answers], [], [], timeout)[0]:
            os.kill(child, signal.SIGKILL)
            _answer(None, timeout)
            raise subprocess.TimeoutExpired(command, timeout)
        status = _answer(None, timeout)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), out.read_text(), err.read_text())


def ran(code: str, *arguments: object) -> list[str]:
    """Run Python code in a process of its own, insist on success, and give what it printed."""
    done = run_script(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@cache
def _server() -> subprocess.Popen[bytes]:
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    atexit.register(server.__exit__, None, None, None)  # without its input it ends
    return server


def _answer(asked: object, timeout: float) -> int:
    """The next number that the server prints."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    if asked is not None:
        server.stdin.write(json.dumps(asked).encode() + b"\n")
    assert select.select([server.stdout], [], [], timeout)[0], "the server hangs"
    return int(server.stdout.readline())


def load_millstream() -> None:
    """Import all of it, so that forked children have it, but not the libraries of others that it can work with."""
    import millstream

    for module in pkgutil.walk_packages(millstream.__path__, "millstream."):
        if module.name.rpartition(".")[2] not in OTHERS and not module.name.startswith("millstream.cli."):
            importlib.import_module(module.name)


def _serve() -> tuple[str, dict[str, object]]:
    """Fork for each line that comes, and say the child's number and its status; gives a child what it runs."""
    load_millstream()
    sys.path[0] = ""
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            return _become(*json.loads(line))
        os.write(1, b"%d\n" % child)
        os.write(1, b"%d\n" % os.waitpid(child, 0)[1])
    sys.exit()


def _become(
    code: str, argv: list[str], folder: str, env: dict[str, str], out: str, err: str
) -> tuple[str, dict[str, object]]:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    for number, path, how in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        os.dup2(os.open(path, how | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.argv, main = argv, types.ModuleType("__main__")
    sys.modules["__main__"] = main
    return code, main.__dict__


if __name__ == "__main__":
    _code, _names = _serve()
    exec(compile(_code, "<string>", "exec"), _names)
