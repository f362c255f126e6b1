"""Worker processes of an evaluator: each has a pipe and one task at a time; they end when the other end closes."""

import multiprocessing
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from fastsim.engines import runtime_module
from fastsim.errors import FastsimError, WorkError
from fastsim.runner.pool import quiet_start

if TYPE_CHECKING:
    from fastsim.analysis.evaluate.evaluate import Answer, Task


class EvaluatorPool:
    """Processes forked from a fork server that has imported the kernels.

    Parameters
    ----------
    size
        How many.
    engines
        The folders of the engines that they will run.
    """

    def __init__(self, size: int, engines: Iterable[str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fastsim.worker", "fastsim.simulation", *map(runtime_module, engines)])
        self._processes = []
        self._pipes: list[Connection] = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            with quiet_start():
                process = context.Process(target=serve, args=(theirs,), daemon=True)
                process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def run(self, tasks: Sequence["Task"]) -> Iterator["Answer"]:
        """Answers in the order of the tasks.

        Raises
        ------
        FastsimError
            What a task raised.
        WorkError
            When a worker died.
        """
        answers: dict[int, Answer] = {}
        waiting = iter(range(len(tasks)))
        busy: dict[Connection, int] = {}
        for pipe in self._pipes:
            self._hand_out(pipe, tasks, waiting, busy)
        for place in range(len(tasks)):
            while place not in answers:
                for ready in wait(list(busy)):
                    pipe = next(each for each in busy if each is ready)
                    try:
                        answer = pipe.recv()
                    except (EOFError, OSError):
                        raise WorkError("a worker process died, perhaps for lack of memory: use one worker") from None
                    if isinstance(answer, FastsimError):
                        raise answer
                    if isinstance(answer, str):
                        raise RuntimeError(f"in a worker:\n{answer}")
                    answers[busy.pop(pipe)] = answer
                    self._hand_out(pipe, tasks, waiting, busy)
            yield answers.pop(place)

    def _hand_out(
        self, pipe: Connection, tasks: Sequence["Task"], waiting: Iterator[int], busy: dict[Connection, int]
    ) -> None:
        place = next(waiting, None)
        if place is not None:
            busy[pipe] = place
            with suppress(OSError):  # its death shows when its answer is read
                pipe.send(tasks[place])

    def close(self) -> None:
        """End the processes, those that are busy at once."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(0.5)
            if process.exitcode is None:
                process.kill()
                process.join()


def serve(pipe: Connection) -> None:
    """The life of a worker: a task in, an answer (or a traceback) out, until the other end closes."""
    import traceback

    from fastsim.analysis.evaluate.evaluate import run_task
    from fastsim.analysis.evaluate.loads import LoadPlan

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    plan = LoadPlan()
    with suppress(EOFError, OSError):  # nobody is there any more
        while True:
            task = pipe.recv()
            try:
                answer: object = run_task(plan, task)
            except FastsimError as error:
                answer = error
            except Exception:  # noqa: BLE001 - a bug: the parent raises it with this traceback
                answer = traceback.format_exc()
            pipe.send(answer)
