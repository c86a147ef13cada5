"""Surprises that the user allows: named by a part of their sentence, they surprise no more."""

import dataclasses
import re
from collections.abc import Sequence

from gshard_annotate.checks import kind_of
from gshard_annotate.inspector.report import Exchange, Report, Value


def accept(report: Report, patterns: Sequence[str]) -> Report:
    """The report with the surprises that fit a pattern as accepted ones.

    Raises:
      TypeError: A pattern that is no text.
      ValueError: An empty one, which would accept everything.
    """
    check_patterns("accept", patterns)
    left = set(patterns)
    exchanges = [_exchange(one, patterns, left) for one in report.exchanges]
    return dataclasses.replace(
        report,
        exchanges=tuple(sorted(exchanges, key=rank)),
        values=tuple(_value(one, patterns, left) for one in report.values),
        notes=(
            *report.notes,
            *(f"no surprise fits what is accepted: {one!r}" for one in patterns if one in left),
        ),
    )


def check_patterns(who: str, patterns: Sequence[str]) -> None:
    """Refuses what is no pattern, and the empty one."""
    for one in patterns:
        if not isinstance(one, str):
            raise TypeError(f"{who}: {kind_of(one)} is no pattern; give a part of the sentence")
        if not one.strip("* "):
            raise ValueError(
                f"{who}: pattern {one!r} would accept every surprise; give a part of the sentence"
            )


def rank(one: Exchange) -> tuple[bool, int]:
    """Where an exchange stands in a report: surprises first, then by bytes."""
    return not one.surprise, -one.collective.bytes * one.times


def _exchange(one: Exchange, patterns: Sequence[str], left: set[str]) -> Exchange:
    if not _fits(one.surprise, patterns, left):
        return one
    return dataclasses.replace(one, surprise="", accepted=one.surprise)


def _value(one: Value, patterns: Sequence[str], left: set[str]) -> Value:
    if not one.note or not _fits(one.sentence, patterns, left):
        return one
    return dataclasses.replace(one, note="", accepted=one.note)


def _fits(sentence: str, patterns: Sequence[str], left: set[str]) -> bool:
    fitting = [one for one in patterns if sentence and _expression(one).search(sentence)]
    left.difference_update(fitting)
    return bool(fitting)


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
