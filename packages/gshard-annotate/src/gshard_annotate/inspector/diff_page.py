"""What changed, as the first part of a report's page."""

from collections.abc import Sequence
from html import escape

from gshard_annotate.inspector.diff_text import cut, figures, moved, surprises
from gshard_annotate.inspector.differences import Change, Diff
from gshard_annotate.inspector.grouping import (
    counted,
    exchange_changes,
    name_of,
    value_changes,
)
from gshard_annotate.inspector.page_tables import source_line
from gshard_annotate.inspector.report import Exchange, Value
from gshard_annotate.inspector.text import axes_of


def changes_section(diff: Diff) -> str:
    """The difference: what is not comparable, surprises, collectives, values and figures."""
    warnings = "".join(
        f'<p class="note">Warning: {escape(warning)}.</p>' for warning in diff.warnings
    )
    found = "".join(_list(title.capitalize(), one) for title, one in surprises(diff).items() if one)
    parts = [found, _exchanges(diff), _values(diff), _figures(diff)]
    body = "".join(parts) if diff else "<p>No difference.</p>"
    return f'<section id="changes"><h2>What changed</h2>{warnings}{body}</section>'


def _list(title: str, sentences: list[str]) -> str:
    items = "".join(f"<li>{escape(one)}</li>" for one in counted(sentences))
    return f"<h3>{title}</h3><ul>{items}</ul>"


def _exchanges(diff: Diff) -> str:
    headings = ("Change", "Kind", "Mesh axes", "Before", "After", "Source")
    return _table(
        "Collectives", headings, [_exchange(one) for one in exchange_changes(diff.exchanges)]
    )


def _exchange(group: Sequence[Change[Exchange]]) -> list[str]:
    known = group[0].known
    names = [group[0].what, escape(known.collective.kind), escape(axes_of(known))]
    amounts = [moved([one.before for one in group]), moved([one.after for one in group])]
    return [*names, *amounts, source_line(known.source)]


def _values(diff: Diff) -> str:
    headings = ("Change", "Role", "Name", "Before", "After")
    return _table("Values", headings, [_value(one) for one in value_changes(diff.values)])


def _value(group: Sequence[Change[Value]]) -> list[str]:
    one, name = group[0], name_of([each.known for each in group])
    before, after = cut(one.before, one.after), cut(one.after, one.before)
    codes = [f"<code>{escape(text)}</code>" for text in (name, before, after)]
    return [one.what, escape(one.known.role), *codes]


def _figures(diff: Diff) -> str:
    rows = [[escape(what), was, now] for what, was, now in figures(diff) if was != now]
    return _table("Figures of one device", ("Figure", "Before", "After"), rows)


def _table(title: str, headings: tuple[str, ...], rows: list[list[str]]) -> str:
    if not rows:
        return f"<h3>{title}</h3><p>As before.</p>"
    head = "".join(f'<th scope="col">{name}</th>' for name in headings)
    body = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>\n" for row in rows)
    return (
        f'<h3>{title}</h3><div class="wide" tabindex="0" role="region" aria-label="{title}">'
        f'<table class="changes"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
