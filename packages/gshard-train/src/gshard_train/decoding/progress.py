"""How far a decoding is: a bar on a terminal, plain lines in a log.

translated 1,200 of 5,000 sentences   310 sentences/s   0:12 left
"""

import sys
import time
from collections.abc import Callable

import jax
import tqdm
from absl import logging

LOG_SECONDS = 10.0


class DecodingProgress:
    """Counts translated sentences; the first process shows them. Usable in a `with` block.

    Args:
      total: sentences to translate.
      shown: whether to show anything.
      known: sentences whose translations an earlier run left.
      clock: seconds, for tests.
    """

    def __init__(
        self,
        total: int,
        *,
        shown: bool = True,
        known: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._count, self._clock = total, known, clock
        self._shown = shown and jax.process_index() == 0
        self._first: tuple[int, float] | None = None  # count and time of the first batch
        self._logged_at = clock()
        terminal = self._shown and sys.stderr.isatty()
        self._bar = tqdm.tqdm(
            total=total, initial=known, unit=" sentences", disable=not terminal, dynamic_ncols=True
        )

    def __enter__(self) -> "DecodingProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, count: int) -> None:
        """`count` more sentences are translated."""
        self._count += count
        self._bar.update(count)
        now = self._clock()
        if self._shown and self._bar.disable:
            self._log(now)
        # From the first batch on, since that one's time is mostly the compiler's.
        self._first = self._first or (self._count, now)

    def _log(self, now: float) -> None:
        if now - self._logged_at < LOG_SECONDS and self._count < self._total:
            return
        self._logged_at = now
        parts = [f"translated {self._count:,} of {self._total:,} sentences"]
        if self._first and now > self._first[1]:
            rate = (self._count - self._first[0]) / (now - self._first[1])
            minutes, seconds = divmod(round((self._total - self._count) / max(rate, 1e-9)), 60)
            parts += [f"{rate:,.1f} sentences/s", f"{minutes}:{seconds:02} left"]
        logging.info("%s", "   ".join(parts))
