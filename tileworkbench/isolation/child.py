"""The other side of `Process`: ``python -m tileworkbench.isolation.child SOCKET``.

It answers one request after the other, each a function with its arguments, and ends when nobody
asks for a while, or when the process that asked is gone.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

IDLE_SECONDS = 60.0


def _listen(connection: Connection, requests: queue.Queue[bytes | None]) -> None:
    """Hand over what arrives. A thread of its own, so that a call that hangs ends with its caller:
    generated code runs without the lock of the interpreter.
    """
    while True:
        try:
            requests.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


def _answer(request: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(request)
        return pickle.dumps((True, function(*arguments)))
    except BaseException as error:
        said = "".join(traceback.format_exception_only(error)).strip()
        return pickle.dumps((False, (type(error).__name__, said)))


def main(handle: int) -> None:
    """Answer until nobody asks."""
    with suppress(OSError):  # whoever runs out of memory, it is this process that is ended
        Path("/proc/self/oom_score_adj").write_text("1000")
    connection = Connection(handle)
    requests: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_listen, args=(connection, requests), daemon=True).start()
    while True:
        try:
            request = requests.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        connection.send_bytes(_answer(request))


if __name__ == "__main__":
    main(int(sys.argv[1]))
