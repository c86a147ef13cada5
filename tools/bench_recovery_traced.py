"""gshard-train with a trail: what each start was fed, what came of each step, what it compiled.

    TRAIL=/tmp/trail.jsonl python bench_recovery_traced.py --gin_file=... --gin....

Takes the flags of `python -m gshard_train.train`. Every line of the file that TRAIL names has the
number of the start's process beside one of
  fed, names    the index of a batch that the feed gives, and the names of its examples
  step, ...     what `metrics.jsonl` gets
  event         what JAX says about the compilation cache, and the seconds that something took
With LIGHT=1 TensorBoard and pictures are left out, whose imports take longer than a small run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

if os.environ.get("LIGHT") == "1":
    sys.modules |= dict.fromkeys(["clu", "matplotlib"])  # pyright: ignore[reportCallIssue, reportArgumentType]

import jax

from gshard_m4.feed import Feed
from gshard_train import train
from gshard_train.monitoring.metrics import MetricsWriter

_EVENTS = ("/jax/compilation_cache/", "/jax/core/compile/")


def _note(**found: Any) -> None:
    """One line, which a kill right after it does not take away."""
    line = json.dumps({"start": os.getpid(), **found}) + "\n"
    with open(os.environ["TRAIL"], "a", encoding="utf-8") as file:
        file.write(line)


def _traced_feed(give: Callable[[Feed], Any]) -> Callable[[Feed], Any]:
    def traced(feed: Feed) -> Any:
        position = feed.get_state()
        _note(fed=position["next_index"], names=feed.examples(position))
        return give(feed)

    return traced


def _traced_write(write: Callable[..., None]) -> Callable[..., None]:
    def traced(writer: MetricsWriter, step: int, scalars: Any) -> None:
        write(writer, step, scalars)
        _note(step=step, **{name: float(value) for name, value in scalars.items()})

    return traced


def _note_event(event: str, **_: Any) -> None:
    if event.startswith(_EVENTS):
        _note(event=event)


def _note_seconds(event: str, duration_secs: float, **_: Any) -> None:
    if event.startswith(_EVENTS):
        _note(event=event, seconds=duration_secs)


if __name__ == "__main__":
    setattr(Feed, "__next__", _traced_feed(Feed.__next__))  # noqa: B010  # has no setter's type
    MetricsWriter.write = _traced_write(MetricsWriter.write)
    jax.monitoring.register_event_listener(_note_event)
    jax.monitoring.register_event_duration_secs_listener(_note_seconds)
    train.run()
