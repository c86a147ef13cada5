"""What a change did to a program: two reports, one beside the other.

Instructions have no names that outlive a change, so they are matched by what they do and where they
come from: first those alike in everything, then those that moved to another line, then those that
come from the same place.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from gshard_annotate.checks import describe_mesh
from gshard_annotate.inspector.cuts import same
from gshard_annotate.inspector.report import Exchange, Report, Value
from gshard_annotate.inspector.surprise_changes import SurpriseChanges, surprise_changes

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Change(Generic[T]):
    """An exchange or a value that is not as it was.

    Attributes:
      before: What it was; None when it is new.
      after: What it is; None when it is gone.
    """

    before: T | None
    after: T | None

    @property
    def what(self) -> str:
        """`added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    @property
    def known(self) -> T:
        """The later of the two that is there."""
        found = self.before if self.after is None else self.after
        assert found is not None
        return found


@dataclasses.dataclass(frozen=True)
class Diff:
    """What `diff` found.

    Attributes:
      before: The first report.
      after: The second report.
      exchanges: Collectives that were added, are gone, or move other bytes than before.
      values: Values that were added, are gone, or have another shape or sharding than before.
      warnings: Why the two may not be comparable, as another mesh or chip.
    """

    before: Report
    after: Report
    exchanges: tuple[Change[Exchange], ...]
    values: tuple[Change[Value], ...]
    warnings: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether the programs differ; time to compile and lines moved in a file do not count."""
        before, after = self.before, self.after
        figures = before.memory != after.memory or before.cost != after.cost
        found = self.exchanges or self.values or any(self.surprises)
        return bool(found or figures or before.mesh != after.mesh)

    @property
    def surprises(self) -> SurpriseChanges:
        """The surprises that are new, gone, or of another size."""
        return surprise_changes(self.before.surprises, self.after.surprises)

    def text(self) -> str:
        """The difference in lines to read."""
        from gshard_annotate.inspector.diff_text import diff_text

        return diff_text(self)

    def __str__(self) -> str:
        return self.text()

    def json(self) -> str:
        """The difference as JSON."""
        from gshard_annotate.inspector.diff_text import diff_json

        return diff_json(self)

    def html(self) -> str:
        """The page of the second report, with what changed on top."""
        from gshard_annotate.inspector.report_page import page

        return page(self.after, self)

    def write_json(self, path: str | Path) -> Path:
        """Writes `json()`, whole or not at all."""
        from gshard_annotate.inspector.json_form import write_beside

        return write_beside(path, self.json())

    def write_html(self, path: str | Path) -> Path:
        """Writes `html()`, whole or not at all."""
        from gshard_annotate.inspector.json_form import write_beside

        return write_beside(path, self.html())


def diff(before: Report, after: Report) -> Diff:
    """What differs between two reports: of one function before and after a change, say."""
    exchanges = match(before.exchanges, after.exchanges, _EXCHANGE_KEYS)
    values = match(before.values, after.values, _VALUE_KEYS)
    return Diff(
        before=before,
        after=after,
        exchanges=tuple(one for one in exchanges if _moves_otherwise(one)),
        values=tuple(one for one in values if _is_cut_otherwise(one)),
        warnings=tuple(_warnings(before, after)),
    )


def match(
    before: Sequence[T], after: Sequence[T], keys: Sequence[Callable[[T], Hashable | None]]
) -> list[Change[T]]:
    """Pairs of two lists, by each key in turn; what is left of either stands alone.

    Args:
      before: The first list.
      after: The second list, whose order the pairs keep.
      keys: What makes two items one, the strictest first; None for an item that has no such key.
    """
    partner: dict[int, int] = {}
    left = list(range(len(before)))
    for key in keys:
        waiting: dict[Hashable, list[int]] = {}
        for i in left:
            if (found := key(before[i])) is not None:
                waiting.setdefault(found, []).append(i)
        for j, one in enumerate(after):
            if j not in partner and (same_key := waiting.get(key(one))):
                partner[j] = same_key.pop(0)
        left = [i for i in left if i not in set(partner.values())]
    pairs = [
        Change(before[partner[j]] if j in partner else None, one) for j, one in enumerate(after)
    ]
    return pairs + [Change(before[i], None) for i in left]


def _run(one: Exchange) -> tuple[Hashable, ...]:
    # The groups of a mesh axis grow with the axis; without axes their size is all there is.
    return one.collective.kind, one.mesh_axes or one.group_size


def _amount(one: Exchange) -> tuple[Hashable, ...]:
    return one.collective.bytes, one.times


def _line(one: Exchange | Value) -> Hashable | None:
    return one.source and (one.source.file, one.source.line)


def _function(one: Exchange) -> Hashable | None:
    return one.source and (one.source.file, one.source.function)


def _with(one: Exchange, *parts: Hashable) -> Hashable | None:
    return (*_run(one), *parts) if all(parts) else None


_EXCHANGE_KEYS: tuple[Callable[[Exchange], Hashable | None], ...] = (
    lambda one: (*_run(one), *_amount(one), _line(one), one.collective.op_name),
    lambda one: _with(one, _amount(one), one.collective.op_name),
    lambda one: _with(one, _amount(one), _line(one)),
    lambda one: _with(one, _line(one)),
    lambda one: _with(one, one.collective.op_name),
    lambda one: _with(one, _amount(one), _function(one)),
)
_VALUE_KEYS: tuple[Callable[[Value], Hashable | None], ...] = (
    lambda one: (one.role, one.name, one.shape, one.asked, one.compiled, _line(one)),
    lambda one: (one.role, one.name, one.shape, one.asked, one.compiled),
    lambda one: (one.role, one.name, one.shape),
    lambda one: (one.role, one.name),
)


def _moves_otherwise(one: Change[Exchange]) -> bool:
    return one.before is None or one.after is None or _amount(one.before) != _amount(one.after)


def _is_cut_otherwise(one: Change[Value]) -> bool:
    before, after = one.before, one.after
    if before is None or after is None:
        return True
    return before.shape != after.shape or not (
        _alike(before.asked, after.asked) and _alike(before.compiled, after.compiled)
    )


def _alike(before: str | None, after: str | None) -> bool:
    return before == after or same(before, after)


def _warnings(before: Report, after: Report) -> list[str]:
    pairs = {
        "functions": (before.title, after.title),
        "meshes": (describe_mesh(before.mesh), describe_mesh(after.mesh)),
        "platforms": (before.platform, after.platform),
        "chips": (before.chip or "none", after.chip or "none"),
    }
    notes = {"chips": "; times of the two are not comparable"}
    return [
        f"the {what} differ: {was} before, {now} after{notes.get(what, '')}"
        for what, (was, now) in pairs.items()
        if was != now
    ]
