"""The page of the paper reproduced: one HTML file and one of Markdown, with the same tables."""

from __future__ import annotations

import datetime
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import paper_figures
from reproduce_paper_tables import Section, markdown, table_html

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5d666f; --line: #dfe2e0; --back: #fff;
  --strip: #f4f6f4 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8e6; --soft: #9aa4ad; --line: #34393d; --back: #16191b; --strip: #1e2225 }
}
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; color: var(--ink);
  background: var(--back); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .6rem }
h2 small, .soft { color: var(--soft); font-weight: normal }
a { color: inherit }
nav a { margin-right: .9rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .87rem }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top }
th { color: var(--soft); font-weight: 600; vertical-align: bottom }
td:first-child, td.n { white-space: nowrap }
.n { text-align: right; font-variant-numeric: tabular-nums }
tbody tr:hover { background: var(--strip) }
svg { width: 100%; min-width: 36rem; max-width: 54rem; height: auto; display: block;
  margin: .8rem 0 }
ul { padding-left: 1.1rem; max-width: 60rem }
li { margin: .2rem 0; overflow-wrap: anywhere }
"""
_GREY = "#808890"  # to be read on white and on black


def markdown_page(sections: Sequence[Section], made: Mapping[str, str]) -> str:
    """Every section, what is left out, and of what it was made."""
    parts = [
        f"# {paper_figures.TITLE}: what can be had without its machines\n",
        _opening() + "\n",
        *map(markdown, sections),
        "## What takes the hardware\n",
        *(f"- {one}" for one in paper_figures.WITHOUT_HARDWARE),
        "\n## How it was made\n",
        *(f"- {name}: {said}" for name, said in made.items()),
    ]
    return "\n".join(parts) + "\n"


def html_page(sections: Sequence[Section], made: Mapping[str, str]) -> str:
    """The same as one file with pictures that needs nothing beside itself."""
    links = " ".join(f'<a href="#{one.key}">{html.escape(one.title)}</a>' for one in sections)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>GShard reproduced</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(paper_figures.TITLE)}</h1>",
            f"<p>{html.escape(_opening())}</p><nav>{links}</nav>",
            *map(_section, sections),
            "<h2>What takes the hardware</h2>",
            _list(paper_figures.WITHOUT_HARDWARE),
            '<h2>How it was made</h2><div class="soft">',
            _list([f"{name}: {said}" for name, said in made.items()]),
            "</div></body></html>\n",
        ]
    )


def today() -> str:
    """The date in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _opening() -> str:
    return (
        f"The figures of {paper_figures.SOURCE} beside what the programs of gshard-train give when "
        "the TPU compiler compiles them for the paper's machines, which are not there. Deviation "
        "is ours over the paper's, less one. Sizes and counts are of the compiled programs; times "
        "are estimates."
    )


def _section(section: Section) -> str:
    picture = ""
    if section.picture and section.rows:
        picture = f'<div class="wide">{_svg(section)}</div>'
    title = f"{html.escape(section.title)} <small>{html.escape(section.of)}</small>"
    return (
        f'<section id="{section.key}"><h2>{title}</h2>{picture}\n'
        f'<div class="wide">{table_html(section)}</div>\n{_list(section.says)}</section>'
    )


def _list(said: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(one)}</li>" for one in said) + "</ul>"


def _svg(section: Section) -> str:
    """The section's picture, in greys that suit a light and a dark page."""
    import matplotlib
    from matplotlib.figure import Figure

    assert section.picture is not None
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {
        **dict.fromkeys(colours, _GREY),
        "svg.hashsalt": section.key,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(9, 4), layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        section.picture(axes)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
