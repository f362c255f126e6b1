"""A worker process: it takes tasks from a pipe, and answers, until the other end closes."""

import os
import queue
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from fastsim import _notice
from fastsim.errors import FastsimError
from fastsim.sweeps.worker.task import Job

OUT_OF_MEMORY = 137


def limit_threads() -> dict[str, str]:
    """Environment in which every library a worker loads keeps to one thread."""
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, "1")


def main(connection: Connection, job: Job) -> None:
    """The life of a worker: announce that it is ready, then a reply for every task until the other end closes.

    In come tasks, and numbers: of the task, counted from 1, that others wait to share.
    Messages out: ("note", sentence) when it compiles the kernels, ("ready", None) when it has them, ("started", None)
    with a task, ("at", configuration), ("done", what came of it), ("failed", FastsimError) when it cannot be done,
    ("broken", traceback) when there is a bug.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sending = threading.Lock()

    def send(*message: Any) -> None:
        try:
            with sending:
                connection.send(message)
        except OSError:
            os._exit(1)  # nobody is listening any more

    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    asked = Asked()
    threading.Thread(target=_receive, args=(connection, tasks, asked), daemon=True).start()
    _notice.tell = lambda sentence: send("note", sentence)
    job.prepare()
    run = job.start()
    send("ready", None)
    while True:
        task = tasks.get()
        send("started", None)
        asked.begun += 1
        try:
            outcome = run(task, lambda index: send("at", index), asked.current)
        except FastsimError as error:
            send("failed", error)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # as if the kernel had killed it: whoever gave the task decides what follows
        except Exception:  # noqa: BLE001 - a bug: the parent raises it with this traceback
            send("broken", traceback.format_exc())
        else:
            send("done", outcome)


@dataclass
class Asked:
    """Which of a worker's tasks, counted from 1, is to be shared, and which has begun."""

    share: int = 0
    begun: int = 0

    def current(self) -> bool:
        """Whether the task at hand is to be shared."""
        return self.share == self.begun


def _receive(connection: Connection, tasks: "queue.SimpleQueue[Any]", asked: Asked) -> None:
    """Move tasks to the queue. When the parent is gone, end at once, whatever the kernels are doing."""
    try:
        while True:
            message = connection.recv()
            if isinstance(message, int):
                asked.share = message
            else:
                tasks.put(message)
    except (EOFError, OSError):
        if sys.stdout is not None:  # it is None where it was closed before Python began
            sys.stdout.flush()
        os._exit(0)
