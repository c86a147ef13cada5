"""A page of its own: the template with style and script inside, and what frames every report."""

import string
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from importlib.metadata import version


def document(title: str, body: Sequence[str]) -> str:
    """The text of a page that needs nothing beside itself."""
    folder = resources.files("gshard_m4.report") / "assets"
    parts = {"css": "report.css", "js": "report.js"}
    texts = {key: (folder / name).read_text("utf-8") for key, name in parts.items()}
    template = string.Template((folder / "report.html").read_text("utf-8"))
    return template.substitute(title=escape(title), body="\n".join(body), **texts)


def head(title: str, above: str, links: Sequence[tuple[str, str]], note: str = "") -> str:
    """The page's heading; `links` are (address, text), `above` and `note` are text."""
    nav = "".join(f'<a href="{escape(to)}">{escape(text)}</a>' for to, text in links)
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return (
        f'<header><p class="eyebrow">{escape(above)}</p>\n<h1>{escape(title)}</h1>\n'
        f"<nav>{nav}</nav>{said}</header>"
    )


def finder(total: int) -> str:
    """The field that filters every table; the script shows it."""
    return (
        f'<div class="finder" data-total="{total}" hidden><label for="find">Find a language</label>'
        '<input id="find" type="search" placeholder="name, code, script or band" '
        'autocomplete="off"><output for="find" class="soft"></output></div>'
    )


def facts(found: Sequence[tuple[str, str]]) -> str:
    """How it was made: names, which are text, and what is said of them, which is HTML."""
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{html}</dd>" for name, html in found)
    return f'<section id="made"><h2>How it was made</h2><dl class="made">{listed}</dl></section>'


def codes(lines: Sequence[str]) -> str:
    """Each line as code."""
    return "".join(f"<code>{escape(line)}</code>" for line in lines)


def packages(versions: Mapping[str, str]) -> str:
    """Packages with their versions; this one's own where the scores do not say."""
    found = dict(versions) or {"gshard-m4": version("gshard-m4")}
    return ", ".join(f"{name} {number}" for name, number in found.items())
