"""Running one function over many tasks in processes, with a progress bar.

Workers are started afresh, not forked: they import what they use in 0.1 s and inherit no state.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from gshard_m4.input_error import InputError

T = TypeVar("T")
R = TypeVar("R")
_COUNTER: Any = None
_TICK_SECONDS = 0.25


def count_rows(rows: int) -> None:
    """Adds to the rows that the progress bar shows; called by the function that runs."""
    if _COUNTER is not None:
        with _COUNTER.get_lock():
            _COUNTER.value += rows


def default_processes() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    function: Callable[[T], R],
    tasks: Sequence[T],
    *,
    processes: int,
    title: str,
    rows: int,
    unit: str = "languages",
    quiet: bool = False,
) -> list[R]:
    """The results of a function for all tasks, in the order of the tasks.

    Args:
        function: of a module, with one argument; it may call `count_rows`.
        tasks: what to run it on; long ones first use the processes best.
        processes: how many; with 1 all runs here.
        title: in front of the progress bar.
        rows: that will be counted in all, about; 0 to count tasks.
        unit: what a task is.
        quiet: no progress bar (there is none either where standard error is no terminal).

    Raises:
        InputError: all faults of all tasks, after every one has run.
    """
    results: list[Any] = [None] * len(tasks)
    faults: list[str] = []
    with _Bar(title, len(tasks), rows, unit, quiet) as bar:
        run = _run_here if processes == 1 or len(tasks) < 2 else _run_in_processes
        for number, result, wrong in run(function, tasks, min(processes, len(tasks)), bar):
            results[number] = result
            faults.extend(wrong)
            bar.finished_one()
    if faults:
        raise InputError(faults)
    return results


Outcome = tuple[int, Any, tuple[str, ...]]


def _guarded(function: Callable[[Any], Any], number: int, task: Any) -> Outcome:
    """An InputError becomes its faults: exceptions lose their fields between processes."""
    try:
        return number, function(task), ()
    except InputError as error:
        return number, None, error.faults
    except OSError as error:  # a disk that is full, a file that went away
        return number, None, (str(error),)


def _run_here(function, tasks, _processes: int, bar: "_Bar") -> Iterator[Outcome]:
    global _COUNTER
    _COUNTER = bar.counter
    for number, task in enumerate(tasks):
        yield _guarded(function, number, task)
        bar.refresh()


def _run_in_processes(function, tasks, processes: int, bar: "_Bar") -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start, initargs=(bar.counter,)
    ) as pool:
        waiting: set[Future[Outcome]] = {
            pool.submit(_guarded, function, number, task) for number, task in enumerate(tasks)
        }
        try:
            while waiting:
                done, waiting = wait(waiting, _TICK_SECONDS, FIRST_COMPLETED)
                bar.refresh()
                yield from (future.result() for future in done)
        except BrokenProcessPool:
            raise InputError(
                ["a worker process was ended from outside (out of memory?); run the same command"
                 " again: what is finished is kept. Fewer --processes need less memory"]
            ) from None  # fmt: skip
        except KeyboardInterrupt:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _start(counter: Any) -> None:
    """In a worker: it ends with its parent, whatever ends that, and leaves Ctrl-C to it."""
    global _COUNTER
    _COUNTER = counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Bar:
    """A progress bar over rows, with the number of tasks that are finished."""

    def __init__(self, title: str, tasks: int, rows: int, unit: str, quiet: bool):
        from tqdm import tqdm

        self.counter = multiprocessing.get_context("spawn").Value("Q", 0)
        self._tasks, self._unit, self._finished = tasks, unit, 0
        self._counts_tasks = not rows
        self._bar = tqdm(
            desc=title,
            total=rows or tasks,
            unit=" rows" if rows else f" {unit}",
            unit_scale=bool(rows),
            disable=True if quiet else None,
        )

    def __enter__(self) -> "_Bar":
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self.refresh()
        self._bar.close()

    def finished_one(self) -> None:
        self._finished += 1
        self.refresh()
        self._show()

    def refresh(self) -> None:
        done = self._finished if self._counts_tasks else self.counter.value
        self._bar.update(done - self._bar.n)

    def _show(self) -> None:
        if not self._counts_tasks:
            self._bar.set_postfix_str(f"{self._finished} of {self._tasks} {self._unit}")
