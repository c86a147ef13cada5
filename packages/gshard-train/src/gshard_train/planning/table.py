"""What a search found, in lines to read."""

import textwrap
from collections.abc import Mapping, Sequence

from gshard_annotate.inspector.quantities import size
from gshard_train.planning.meshes import rules_name
from gshard_train.planning.row import Candidate, Row
from gshard_train.planning.search import Found
from gshard_train.precompiling.breakdown import breakdown

_HEAD = (
    "", "mesh", "rules", "groups", "remat", "parts", "dispatch", "GiB", "step s", "tokens/s",
    "most of it",
)  # fmt: skip
_WORDS = 60
_RIGHT = {3, 5, 7, 8, 9}
_ENDED = {
    "all": "Nothing is left that could be faster.",
    "time": "--time_limit is over.",
    "count": "--candidates are compiled.",
    "interrupted": "Interrupted.",
}


def report(found: Found, refused: Mapping[str, int]) -> str:
    """The table of what was compiled, best first, and what was not, counted by reason.

    Args:
      found: by the search.
      refused: how many the checks before it refused, for which reason.
    """
    rows = best_first(found.rows)
    lines = []
    if rows:
        lines += _aligned([_HEAD, *(_cells(row, row is found.best) for row in rows)])
        own = any(row.candidate.own for row in rows)
        lines.append("> is the fastest that fits" + ", * the gin files' own layout" * own)
        lines += ["", _ENDED[found.ended] + _waiting(found)]
    lines += _too_high_floors(rows)
    lines += _counted("left out", found.skipped) + _counted("refused by the checks", refused)
    return "\n".join(lines)


def best_first(rows: Sequence[Row]) -> list[Row]:
    """What fits by its step, then what does not by its need."""
    return sorted(rows, key=lambda row: (not row.fits, row.seconds or row.bytes or float("inf")))


def first_ones(candidates: Sequence[Candidate], count: int, refused: Mapping[str, int]) -> str:
    """Which layouts a search would begin with, by the guesses, and what the checks refuse.

    Args:
      candidates: in their order.
      count: of all.
      refused: how many the checks refuse, for which reason.
    """
    lines = [f"{count:,} layouts; the search would begin with"]
    for one in candidates:
        floor = one.floor
        lines.append(
            f"  {floor.guessed_seconds:.3g} s a step (at least {floor.seconds:.3g}), about "
            f"{size(floor.guessed_bytes)}: {layout_line(one)}{' *' * one.own}"
        )
    lines.append("Guesses; * is the gin files' own layout.")
    return "\n".join([*lines, *_counted("refused by the checks", refused)])


def layout_line(candidate: Candidate) -> str:
    """A layout on one line."""
    mesh, rules, groups, remat, parts, dispatch = layout_cells(candidate)
    words = [
        mesh,
        rules,
        groups and f"{groups} group{'s' * (groups != '1')}",
        remat and f"remat {remat}",
    ]
    words += [f"{parts} parts" if parts != "1" else "", dispatch]
    return ", ".join(word for word in words if word)


def outcome(row: Row) -> str:
    """What became of a candidate, on one line."""
    if row.seconds is None:
        return _fault(row)
    said = f"{row.seconds:.4g} s a step, {row.tokens_per_second or 0:,.0f} tokens/s"
    return f"{said}, {size(row.bytes or 0)}" + ("" if row.fits else ": does not fit")


def _cells(row: Row, best: bool) -> Sequence[str]:
    mark = (">" if best else "") + ("*" if row.candidate.own else "")
    figures = ["", "", ""]
    if row.bytes is not None:
        figures[0] = f"{row.bytes / 2**30:.1f}"
    if row.seconds is not None:
        figures[1:] = f"{row.seconds:.4g}", f"{row.tokens_per_second or 0:,.0f}"
    return mark, *layout_cells(row.candidate), *figures, said_of(row)


def said_of(row: Row) -> str:
    """The part of the step that takes longest, or why there is none, in few words."""
    return _most(row) if row.fits else textwrap.shorten(_fault(row), _WORDS, placeholder=" ...")


def layout_cells(candidate: Candidate) -> Sequence[str]:
    """Mesh, rules, groups, remat, parts and dispatch, in words; "" for what a model lacks."""
    experiment, model = candidate.experiment, candidate.experiment.model
    sizes = [f"{axis} {count}" for axis, count in candidate.mesh.items() if count > 1]
    remat = model.remat if isinstance(model.remat, str) else "+".join(model.remat)
    parts = str(experiment.microbatches)
    if candidate.mesh.get("stage", 1) > 1:
        parts += f"x{model.pipeline_microbatches or candidate.mesh['stage']}"
    return (
        " ".join(sizes) or "1 device",
        rules_name(experiment) or "own",
        str(model.num_groups) if model.num_experts else "",
        remat,
        parts,
        model.dispatch if model.num_experts else "",
    )


def _most(row: Row) -> str:
    """The part of the step that takes longest."""
    assert row.result.report is not None
    assert row.seconds
    parts = breakdown(row.result.report)
    name = max(parts, key=lambda each: parts[each])
    return f"{name} {100 * parts[name] / row.seconds:.0f} %"


def _fault(row: Row) -> str:
    """On one line why there is no program, or none that fits."""
    fault = row.result.fault
    if (fault is None or fault.kind == "too large") and row.bytes and row.limit:
        return f"{size(row.bytes - row.limit)} too much"
    return fault.message.partition("\n")[0] if fault else "no estimate"


def _waiting(found: Found) -> str:
    if not found.waiting:
        return ""
    return f" {found.waiting:,} layouts that might fit were not compiled."


def _too_high_floors(rows: Sequence[Row]) -> list[str]:
    wrong = [row for row in rows if row.seconds and row.seconds < row.candidate.floor.seconds]
    if not wrong:
        return []
    return [
        f"{len(wrong)} of them are below their floor of time: what was left out for its floor may "
        "be faster too."
    ]


def _counted(what: str, reasons: Mapping[str, int]) -> list[str]:
    if not (total := sum(reasons.values())):
        return []
    most = sorted(reasons.items(), key=lambda each: -each[1])
    width = len(f"{most[0][1]:,}")
    return [f"{total:,} {what}:", *(f"  {count:>{width},}  {reason}" for reason, count in most)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    used = [any(row[column] for row in rows[1:]) for column in range(len(_HEAD))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in _RIGHT else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            if used[column]
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
