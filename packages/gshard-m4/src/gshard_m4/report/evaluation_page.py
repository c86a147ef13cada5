"""The report of an evaluation: one HTML page that needs nothing beside itself.

The page is readable without scripts; `assets/report.js` adds sorting and filtering. Every piece of
text that comes from translations or a manifest passes through `html.escape`.
"""

import json
import string
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from importlib.metadata import version
from typing import Any

from gshard_m4.evaluation.scores import Scores
from gshard_m4.evaluation.translations import Split
from gshard_m4.report.examples import across_ranking, by_language
from gshard_m4.report.sections import split_section

_METRIC_NAMES = {"chrfpp": "chrF++", "bleu": "BLEU"}


def page(scores: Scores, splits: Sequence[Split], *, command: str) -> str:
    """The text of report.html.

    Args:
      scores: what `evaluate` found in `splits`.
      splits: the translations, for the examples.
      command: the command line to show as the way to make the page again.
    """
    count = len({one.code for split in scores.splits for one in split.languages})
    title = f"{count} language{'s' if count != 1 else ''} into English"
    body = [
        _header(scores, title),
        _finder(count),
        *(split_section(split, scores.min_phrases) for split in scores.splits),
        '<section id="translations"><h2>Translations</h2>',
        across_ranking(scores.splits[0], splits[0]),
        by_language(scores, splits),
        "</section>",
        _how_made(scores, command),
    ]
    folder = resources.files("gshard_m4.report") / "assets"
    parts = {"css": "report.css", "js": "report.js"}
    texts = {key: (folder / name).read_text("utf-8") for key, name in parts.items()}
    template = string.Template((folder / "report.html").read_text("utf-8"))
    return template.substitute(title=escape(title), body="\n".join(body), **texts)


def _header(scores: Scores, title: str) -> str:
    found = sorted({split.checkpoint_step for split in scores.splits})
    steps = ", ".join(f"{step:,}" for step in found)
    note = ""
    if len(found) > 1:
        note = (
            f'<p class="note">The sets below were decoded at different steps ({steps}): '
            "do not compare them with each other.</p>"
        )
    links = [(f"#set-{split.name}", split.title) for split in scores.splits]
    links += [("#translations", "Translations"), ("#made", "How it was made")]
    nav = "".join(f'<a href="{escape(to)}">{escape(text)}</a>' for to, text in links)
    return (
        f'<header><p class="eyebrow">GShard M4 evaluation · checkpoint at step {steps}</p>\n'
        f"<h1>{escape(title)}</h1>\n<nav>{nav}</nav>{note}</header>"
    )


def _finder(total: int) -> str:
    return (
        f'<div class="finder" data-total="{total}" hidden><label for="find">Find a language</label>'
        '<input id="find" type="search" placeholder="name, code or script" autocomplete="off">'
        '<output for="find" class="soft"></output></div>'
    )


def _how_made(scores: Scores, command: str) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("gshard-m4", "sacrebleu"))
    signatures = ((_METRIC_NAMES[key], text) for key, text in scores.signatures.items())
    facts = [
        ("Command", f"<code>{escape(command)}</code>"),
        ("Packages", escape(packages)),
        *((f"{name} signature", f"<code>{escape(text)}</code>") for name, text in signatures),
        *(
            (f"Decoding of {escape(split.title)}", _decoding(split.checkpoint_step, split.decoder))
            for split in scores.splits
        ),
        (
            "Averages",
            "over languages, each counting once whatever its number of phrases; never over pooled "
            f"phrases. Languages with fewer than {scores.min_phrases} phrases are averaged apart.",
        ),
        ("Exact", "the translation is the reference, character for character, outer spaces aside."),
        ("Copied", "the translation is the source, although the reference is not."),
        ("Cut", "the decoder reached its longest length before the end of the translation."),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts)
    return f'<section id="made"><h2>How it was made</h2><dl class="made">{listed}</dl></section>'


def _decoding(step: int, decoder: Mapping[str, Any]) -> str:
    settings = [f"checkpoint step = {step}"]
    for name, value in decoder.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        settings.append(f"{name} = {text}")
    return "".join(f"<code>{escape(setting)}</code>" for setting in settings)
