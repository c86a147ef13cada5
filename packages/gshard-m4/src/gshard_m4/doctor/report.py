"""What was found, as lines of text and as JSON."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from gshard_m4.doctor.checks import CHECKS, Finding
from gshard_m4.doctor.examine import Examination

_LANGUAGES_SHOWN = 8
_DETAILS_SHOWN = 3


def lines(found: Examination, *, everything: bool = False) -> list[str]:
    """One paragraph a check: faults first, then notes, then the sum.

    Args:
        found: what to tell.
        everything: all languages and details of a check, rather than the worst few.
    """
    languages = _counted(found.languages, "language")
    head = f"{found.path}: {found.kind}, {languages}, {_counted(found.rows, 'row')}"
    groups = _groups(found.findings)
    told = [line for group in groups for line in ["", *_paragraph(group, everything)]]
    faults = sum(group[0].is_fault for group in groups)
    notes = len(groups) - faults
    return [head, *told, "", f"{_counted(faults, 'fault')}, {_counted(notes, 'note')}"]


def as_json(found: Examination) -> dict[str, Any]:
    """All findings with what they mean."""
    return {
        "schema_version": 1,
        "path": str(found.path),
        "kind": found.kind,
        "languages": found.languages,
        "rows": found.rows,
        "findings": [
            {"fault": one.is_fault}
            | dataclasses.asdict(one)
            | {"title": CHECKS[one.check].title, "advice": one.advice}
            for one in found.findings
        ],
    }


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings of one check and kind of split, in the order of the table, faults first."""
    groups: dict[tuple[bool, int, bool], list[Finding]] = {}
    order = {check: place for place, check in enumerate(CHECKS)}
    for one in findings:
        key = not one.is_fault, order[one.check], one.is_held_out
        groups.setdefault(key, []).append(one)
    return [groups[key] for key in sorted(groups)]


def _paragraph(group: list[Finding], everything: bool) -> list[str]:
    first = group[0]
    check = CHECKS[first.check]
    where = " in held-out sets" if first.is_held_out else " in training text"
    # The names of other checks say where it is.
    where = where if check.advice_held_out else ""
    kind = "fault" if first.is_fault else "note "
    told = [f"{kind} {first.check}{where}: {check.title}"]
    if any(one.language and not one.detail for one in group):
        told.append(f"      {_where(group, everything)}")
    details = [f"{one.language}: {one.detail}".removeprefix(": ") for one in group if one.detail]
    shown = details if everything else details[:_DETAILS_SHOWN]
    told += [f"      {detail}" for detail in shown]
    if len(details) > len(shown):
        told.append(f"      and {len(details) - len(shown)} more (--all)")
    worst = max(group, key=lambda one: (one.rows, bool(one.example)))
    if worst.example:
        told.append(f"      such as {worst.language} {worst.split} {worst.example}")
    return [*told, *([f"      to do: {first.advice}"] if first.advice else [])]


def _where(group: list[Finding], everything: bool) -> str:
    """The languages, those with most rows first."""
    ranked = sorted(group, key=lambda one: (-one.rows, one.language, one.split))
    shown = ranked if everything else ranked[:_LANGUAGES_SHOWN]
    named = ", ".join(map(_one, shown))
    more = f" and {len(ranked) - len(shown)} more (--all)" if len(ranked) > len(shown) else ""
    rows = sum(one.rows for one in group)
    languages = _counted(len({one.language for one in group}), "language")
    exact = [one.exact for one in group if one.exact is not None]
    exactly = f" ({sum(exact):,} to the last character)" if exact else ""
    total = f"{_counted(rows, 'row')}{exactly} in {languages}" if rows else languages
    return f"{total}: {named}{more}"


def _one(finding: Finding) -> str:
    split = f" {finding.split}" if finding.is_held_out else ""
    if not finding.rows:
        return f"{finding.language}{split}"
    share = f" ({finding.rows / finding.of:.2%})" if finding.of > finding.rows else ""
    return f"{finding.language}{split} {finding.rows:,}{share}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
