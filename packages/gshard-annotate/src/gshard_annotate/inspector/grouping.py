"""What is alike in a report stands together: forty layers are one line, not forty."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from gshard_annotate.inspector.differences import Change
from gshard_annotate.inspector.report import Exchange, Report, Source, Value

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Surprise:
    """What nobody asked for, once for all that are alike.

    Attributes:
      sentence: What it is.
      source: The line of the program.
      row: The first of them, as `collective 3` or `value 17`, counted from 0 in the report.
    """

    sentence: str
    source: Source | None
    row: str


def surprise_groups(report: Report) -> list[Surprise]:
    """The report's surprises in its order, alike ones as one."""
    exchanges = [(i, one) for i, one in enumerate(report.exchanges) if one.surprise]
    values = [(i, value) for i, value in enumerate(report.values) if value.note]
    found = []
    for group in _grouped(exchanges, lambda pair: (pair[1].surprise, pair[1].source)):
        i, one = group[0]
        times = f" ({len(group):,} times)" if len(group) > 1 else ""
        found.append(Surprise(one.surprise + times, one.source, f"collective {i}"))
    for group in _grouped(values, lambda pair: _value_key(pair[1])):
        i, one = group[0]
        name = name_of([value for _, value in group])
        sentence = dataclasses.replace(one, name=name).sentence
        found.append(Surprise(sentence, one.source, f"value {i}"))
    return found


def exchange_groups(exchanges: Iterable[Exchange]) -> list[list[Exchange]]:
    """Exchanges that do the same and come from the same line."""
    return _grouped(exchanges, _exchange_key)


def value_groups(values: Iterable[Value]) -> list[list[Value]]:
    """Values that differ in a number of their name alone, as those of layers do."""
    return _grouped(values, _value_key)


def exchange_changes(changes: Iterable[Change[Exchange]]) -> list[list[Change[Exchange]]]:
    """Changes of exchanges that do the same and come from the same line."""
    return _grouped(changes, lambda one: _change_key(one, _exchange_key))


def value_changes(changes: Iterable[Change[Value]]) -> list[list[Change[Value]]]:
    """Changes of values that differ in a number of their name alone."""
    return _grouped(changes, lambda one: _change_key(one, _value_key))


def counted(sentences: Iterable[str]) -> list[str]:
    """Each sentence once, with how often it is there."""
    return [
        f"{one} ({count:,} times)" if count > 1 else one
        for one, count in Counter(sentences).items()
    ]


def name_of(group: Sequence[Value]) -> str:
    """The name of a group, as `40 × params['layers'][*]['wi']`."""
    return group[0].name if len(group) == 1 else f"{len(group):,} × {_pattern(group[0])}"


def _change_key(one: Change[T], key: Callable[[T], Hashable]) -> Hashable:
    return tuple(None if each is None else key(each) for each in (one.before, one.after))


def _exchange_key(one: Exchange) -> Hashable:
    moved = (one.collective.kind, one.collective.bytes, one.mesh_axes, one.group_size)
    return *moved, one.source, one.cause, bool(one.surprise)


def _value_key(value: Value) -> Hashable:
    cut = (value.shape, value.asked, value.compiled, value.bytes_per_device)
    return value.role, _pattern(value), *cut, value.source, _starred(value.note)


def _pattern(value: Value) -> str:
    return value.name if value.role == "annotation" else _starred(value.name)


def _starred(text: str) -> str:
    return re.sub(r"\d+", "*", text)


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for one in items:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())
