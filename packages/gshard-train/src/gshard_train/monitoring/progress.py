"""How far a run is: a bar on a terminal, plain lines in a log.

step 1,250 of 2,050   loss 3.412   48,210 tokens/s   dropped 2.1 %   1:37 left
"""

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import tqdm

_logger = logging.getLogger(__name__)
_BAR = "{percentage:3.0f} % |{bar}| {n:,} of {total:,}   {desc}"


class Progress:
    """Shows the newest figures of a run at most every few seconds. Usable in a `with` block.

    Args:
      start: the step that the run goes on from.
      total: the step at which it ends.
      every_seconds: the shortest time between two lines in a log; a terminal's bar moves with
        every update.
      stream: where a bar goes if it is a terminal. Lines go to the log.
      clock: seconds, for tests.
    """

    def __init__(
        self,
        start: int,
        total: int,
        *,
        every_seconds: float = 10.0,
        stream: TextIO | None = None,
        clock: Any = time.monotonic,
    ):
        self._start, self._total, self._every, self._clock = start, total, every_seconds, clock
        self._shown_at = -float("inf")
        self._hidden: str | None = None  # the newest line that was not shown, without time left
        self._previous = (start, clock())
        self._step_seconds: float | None = None
        terminal = stream or sys.stderr
        self._bar = _Bar(start, total, terminal) if terminal and terminal.isatty() else None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, step: int, scalars: Mapping[str, float], *, last: bool = False) -> None:
        """Takes in the figures of `step`: `loss`, `tokens_per_second`, `utilisation` and others.

        Args:
          step: its number.
          scalars: its figures; others than those that are shown do not count.
          last: whether no step follows, so that they are shown now, and no time left.
        """
        if "step_seconds" in scalars:  # without compiling, saving and evaluating
            self._step_seconds = scalars["step_seconds"]
        else:
            self._measure(step)
        figures = self._figures(scalars)
        known = figures if last else [*figures, *self._left(step)]
        if self._bar:
            self._bar.show(step, "   ".join(known))
        elif last or self._clock() - self._shown_at >= self._every:
            self._log(self._line(step, known))
        else:
            self._hidden = self._line(step, figures)

    def close(self) -> None:
        """Shows the last figures if they were held back, and leaves the bar where it is.

        They come without the time left, since no step follows.
        """
        if self._bar:
            self._bar.close()
        elif self._hidden:
            self._log(self._hidden)

    def _line(self, step: int, figures: Sequence[str]) -> str:
        return f"step {step:,} of {self._total:,}   {'   '.join(figures)}"

    def _log(self, line: str) -> None:
        _logger.info(line)
        self._shown_at, self._hidden = self._clock(), None

    def _measure(self, step: int) -> None:
        """Follows the time of a step: half its newest value, so that a compilation soon fades."""
        (before, then), now = self._previous, self._clock()
        if step > before:
            newest = (now - then) / (step - before)
            older = newest if self._step_seconds is None else self._step_seconds
            self._step_seconds = (newest + older) / 2
            self._previous = (step, now)

    def _figures(self, scalars: Mapping[str, float]) -> list[str]:
        figures = []
        if "loss" in scalars:
            figures.append(f"loss {scalars['loss']:.3f}")
        if "tokens_per_second" in scalars:
            figures.append(f"{scalars['tokens_per_second']:,.0f} tokens/s")
        if "utilisation" in scalars:
            figures.append(f"{100 * scalars['utilisation']:.1f} % of peak")
        if "dropped" in scalars:
            figures.append(f"dropped {100 * scalars['dropped']:.1f} %")
        if "slowest_host" in scalars:
            figures.append(f"slowest host {scalars['slowest_host']:.0f}")
        return figures

    def _left(self, step: int) -> list[str]:
        if self._step_seconds is None or step >= self._total:
            return []
        return [f"{_time(self._step_seconds * (self._total - step))} left"]


class _Bar:
    """A bar that gives way to log lines: it is wiped before each and drawn again later."""

    def __init__(self, start: int, total: int, stream: TextIO):
        self._bar = tqdm.tqdm(
            total=total, initial=start, file=stream, bar_format=_BAR, dynamic_ncols=True
        )
        self._handlers = list(logging.getLogger().handlers)
        for handler in self._handlers:
            handler.addFilter(self._wipe)

    def _wipe(self, _: logging.LogRecord) -> bool:
        self._bar.clear()
        return True

    def show(self, step: int, figures: str) -> None:
        self._bar.n = step
        self._bar.set_description_str(figures, refresh=True)

    def close(self) -> None:
        for handler in self._handlers:
            handler.removeFilter(self._wipe)
        self._bar.close()


def _time(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
