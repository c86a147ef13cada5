"""How far a search is: a bar on a terminal, and a line for each layout that was compiled.

43 % |####      | 7 compiled, best 0.612 s, compiling for 21 s with 3.1 GiB   5:38 left
"""

import sys
import time
from typing import TextIO

import tqdm

from gshard_annotate.inspector.quantities import size
from gshard_train.planning.row import Row
from gshard_train.planning.table import layout_line, outcome
from gshard_train.precompiling.compiler import Progress

_BAR = "{percentage:3.0f} % |{bar:10}| {desc}"


class SearchProgress:
    """Shows a search. Usable in a `with` block.

    Args:
      seconds: of the time limit.
      candidates: of its limit.
      stream: where to; a bar only if it is a terminal.
    """

    def __init__(self, seconds: float, candidates: int | None, stream: TextIO | None = None):
        self._seconds, self._candidates = seconds, candidates
        self._stream = stream or sys.stderr
        self._began, self._rows, self._best = time.monotonic(), 0, ""
        self._told: set[str] = set()
        self._bar = tqdm.tqdm(
            total=1.0,
            file=self._stream,
            bar_format=_BAR,
            dynamic_ncols=True,
            disable=not self._stream.isatty(),
            leave=False,
        )

    def __enter__(self) -> "SearchProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Takes the bar away."""
        self._bar.close()

    def say(self, text: str) -> None:
        """Says something above the bar."""
        tqdm.tqdm.write(text, file=self._stream)

    def row(self, row: Row, best: Row | None) -> None:
        """Says what became of a candidate; `best` is the best so far."""
        self._rows += 1
        self._best = f", best {best.seconds:.4g} s" if best and best.seconds else ""
        own = " (the gin files' own)" if row.candidate.own else ""
        kept = " (kept from before)" if row.kept else ""
        line = f"{self._rows}. {layout_line(row.candidate)}{own}: {outcome(row)}{kept}"
        self.say(line)
        self._show("")

    def once(self, text: str) -> None:
        """Says something the first time."""
        if text not in self._told:
            self.say(text)
        self._told.add(text)

    def checking(self) -> None:
        """Says that nothing is compiled until all layouts were checked."""
        self._show(", checking layouts")

    def compiling(self, progress: Progress) -> None:
        """Takes in how far the compiler is."""
        told = f", {progress.doing} for {progress.seconds:.0f} s with {size(progress.host_bytes)}"
        self._show(told)

    def _show(self, doing: str) -> None:
        spent = time.monotonic() - self._began
        shares = [spent / self._seconds]
        if self._candidates:
            shares.append(self._rows / self._candidates)
        self._bar.n = min(1.0, max(shares))
        minutes, seconds = divmod(round(max(0.0, self._seconds - spent)), 60)
        left = f"   {minutes}:{seconds:02} left"
        self._bar.set_description_str(f"{self._rows} compiled{self._best}{doing}{left}")
