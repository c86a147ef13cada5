"""The search: compiles the candidates in the order of a guess, and leaves out what cannot win."""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Literal

from gshard_train.planning.guess import Guess
from gshard_train.planning.row import Candidate, Row

TOO_LARGE_STATE = "the state alone does not fit"
TOO_SLOW = "their floor of time is above the best step"
MORE_WORK = "they compute more again than one that fits"
MORE_ROOM = "they compute less again than one that is too large"
Ended = Literal["all", "time", "count", "interrupted"]


# What becomes of a candidate in so many seconds at most; None where the time was over before.
Compile = Callable[[Candidate, float], Row | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """When to stop.

    Attributes:
      seconds: for everything.
      candidates: compiled ones, the gin files' own layout included; None for any number.
      device_bytes: memory of a device.
    """

    seconds: float
    candidates: int | None = None
    device_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found.

    Attributes:
      rows: of what was compiled, in that order.
      skipped: how many were left out for which reason.
      waiting: how many might still have been compiled.
      ended: why it ended.
    """

    rows: tuple[Row, ...]
    skipped: Mapping[str, int]
    waiting: int
    ended: Ended

    @property
    def best(self) -> Row | None:
        """The one that fits with the shortest step."""
        return _best(self.rows)


def rank(candidate: Candidate, guess: Guess, device_bytes: int) -> tuple:
    """By which the next one is chosen: of those that seem to fit the one with the highest hopes.

    Of equals it is the one with the fewest groups, which drops the fewest tokens.
    """
    too_large = guess.bytes(candidate) > device_bytes
    return too_large, guess.hopeful_seconds(candidate), candidate.experiment.model.num_groups


class Search:
    """A search through candidates, of which the first is compiled whatever its floor says.

    Args:
      first: the layout of the gin files; None where it does not fit the machine.
      others: gives the others, in any order; called when the first was compiled.
      limits: when to stop.
      on_row: told of each row and of the best so far.
      clock: seconds, for tests.
    """

    def __init__(
        self,
        first: Candidate | None,
        others: Callable[[], list[Candidate]],
        limits: Limits,
        *,
        on_row: Callable[[Row, Row | None], None] = lambda row, best: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._first, self._others, self._limits = first, others, limits
        self._on_row, self._clock = on_row, clock
        self._rows: list[Row] = []
        self._skipped: collections.Counter[str] = collections.Counter()
        self._waiting: list[Candidate] = []

    def run(self, compiled: Compile) -> Found:
        """Compiles until nothing is left that could win, or a limit is reached, or Ctrl-C."""
        end = self._clock() + self._limits.seconds
        try:
            ended = self._run(compiled, end)
        except KeyboardInterrupt:
            ended = "interrupted"
        return Found(
            rows=tuple(self._rows),
            skipped=dict(self._skipped),
            waiting=len(self._waiting),
            ended=ended,
        )

    def _run(self, compiled: Compile, end: float) -> Ended:
        ended = self._try(self._first, compiled, end) if self._first else None
        self._waiting = self._others()
        self._drop(lambda one: one.floor.bytes > self._limits.device_bytes, TOO_LARGE_STATE)
        for row in self._rows:
            self._leave_out(row)
        while self._waiting and ended is None:
            ended = self._try(self._next(), compiled, end)
        return ended or "all"

    def _try(self, candidate: Candidate, compiled: Compile, end: float) -> Ended | None:
        """Compiles one; returns why the search ends where it does."""
        if self._limits.candidates is not None and self._limits.candidates <= len(self._rows):
            return "count"
        if (left := end - self._clock()) <= 0:
            return "time"
        row = compiled(candidate, left)
        if row is None:
            return "time"
        self._waiting = [one for one in self._waiting if one is not candidate]
        self._rows.append(row)
        self._leave_out(row)
        self._on_row(row, _best(self._rows))
        return None

    def _next(self) -> Candidate:
        """The one that most likely fits and is fast, by the guesses and what came of the others."""
        guess = Guess(self._rows)
        return min(self._waiting, key=lambda one: rank(one, guess, self._limits.device_bytes))

    def _leave_out(self, row: Row) -> None:
        best = _best(self._rows)
        if best is not None and best.seconds is not None:
            limit = best.seconds
            self._drop(lambda one: one.floor.seconds >= limit, TOO_SLOW)
        if row.fits:
            self._drop(lambda one: row.candidate.keeps_more_than(one), MORE_WORK)
        elif row.result.fault is None or row.result.fault.kind == "too large":
            self._drop(lambda one: one.keeps_more_than(row.candidate), MORE_ROOM)

    def _drop(self, wrong: Callable[[Candidate], bool], reason: str) -> None:
        kept = [one for one in self._waiting if not wrong(one)]
        self._skipped[reason] += len(self._waiting) - len(kept)
        self._skipped += collections.Counter()  # without reasons that nothing had
        self._waiting = kept


def _best(rows) -> Row | None:
    return min((row for row in rows if row.fits), key=lambda row: row.seconds, default=None)
