"""The report of an evaluation: one HTML page that needs nothing beside itself.

The page is readable without scripts; `assets/report.js` adds sorting, filtering and hiding of
columns. Every piece of text that comes from translations or a manifest passes through
`html.escape`.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gshard_m4.evaluation.defects import MEANINGS
from gshard_m4.evaluation.scores import Scores
from gshard_m4.evaluation.translations import Split
from gshard_m4.report import cells
from gshard_m4.report.document import codes, document, facts, finder, head, packages
from gshard_m4.report.examples import examples_section
from gshard_m4.report.split_section import split_section

_DEFECT_NAMES = {
    "exact": "Exact",
    "wrong_language": "Not English",
    "empty": "Empty",
    "copied": "Copied",
    "truncated": "Cut",
    "repeated": "Repeated",
    "over_long": "Over-long",
    "tokenized": "Tokenised",
    "short": "Short refs",
}


def page(scores: Scores, splits: Sequence[Split], *, command: str = "") -> str:
    """The text of report.html.

    Args:
      scores: what `evaluate` found in `splits`.
      splits: the translations, for the examples and the experts.
      command: the command line to show as the way to make the page again, if not the scores'.
    """
    count = len({one.code for split in scores.splits for one in split.languages})
    title = f"{cells.languages(count)} into English"
    pairs = list(zip(scores.splits, splits, strict=True))
    sections = [
        split_section(scores, found, split.experts, number=number)
        for number, (found, split) in enumerate(pairs)
    ]
    body = [
        _header(scores, title),
        *_remarks(scores),
        finder(count),
        *sections,
        examples_section(scores, splits),
    ]
    return document(title, [*body, facts(_how_made(scores, command or scores.command))])


def _header(scores: Scores, title: str) -> str:
    steps = sorted({s.checkpoint_step for s in scores.splits if s.checkpoint_step is not None})
    listed = ", ".join(f"{step:,}" for step in steps)
    above = ["GShard M4 evaluation", scores.name, f"checkpoint at step {listed}" if steps else ""]
    note = ""
    if len(steps) > 1:
        note = (
            f"The sets below were decoded at different steps ({listed}): "
            "do not compare them with each other."
        )
    links = [(f"#set-{split.name}", split.title) for split in scores.splits]
    links += [("#translations", "Translations"), ("#made", "How it was made")]
    return head(title, " · ".join(filter(None, above)), links, note)


def _remarks(scores: Scores) -> list[str]:
    return [f'<p class="note small">{escape(remark)}</p>' for remark in scores.remarks]


def _how_made(scores: Scores, command: str) -> list[tuple[str, str]]:
    found = [
        ("Command", codes([command]) if command else "not recorded"),
        ("Packages", escape(packages(scores.versions))),
        *((f"{one.title} signature", codes([one.signature])) for one in scores.metrics),
        *_comparison_facts(scores),
        ("Resource bands", escape(scores.bands_from and f"by {scores.bands_from}")),
        ("Files", codes([f"{path} · SHA-256 {digest}" for path, digest in scores.files.items()])),
        *(
            (f"Decoding of {split.title}", codes(_decoding(split.checkpoint_step, split.decoder)))
            for split in scores.splits
        ),
        (
            "Averages",
            "over languages, each counting once whatever its number of phrases; never over pooled "
            f"phrases. Languages with fewer than {scores.min_phrases} phrases are averaged apart.",
        ),
        *((_DEFECT_NAMES.get(key, key), escape(f"{text}.")) for key, text in MEANINGS.items()),
    ]
    return [(name, html) for name, html in found if html]


def _comparison_facts(scores: Scores) -> list[tuple[str, str]]:
    """The baseline and how significance was tested, where there are any."""
    found = []
    if scores.baseline is not None:
        lines = [f"{key}: {text}" for key, text in scores.baseline.signatures.items()]
        kind = f"{scores.baseline.name} ({scores.baseline.kind})"
        found.append(("Baseline", escape(kind) + codes(lines)))
    tested = scores.significance
    if tested is not None:
        words = (
            f"paired {tested.method}, {tested.samples:,} samples a language; p-values are "
            f"corrected for {tested.languages} languages (Holm)"
        )
        lines = [f"{key}: {text}" for key, text in tested.signatures.items()]
        found.append(("Significance", escape(words) + codes(lines)))
    return found


def _decoding(step: int | None, decoder: Mapping[str, Any]) -> list[str]:
    settings = [] if step is None else [f"checkpoint step = {step}"]
    for name, value in decoder.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        settings.append(f"{name} = {text}")
    return settings
