"""The page's part about what would make a run fit."""

from html import escape

from gshard_train.precompiling.advice import Advice, Tried


def advice_section(advice: Advice) -> str:
    """What was tried, and the flags of what fits."""
    head = "<th>Change</th><th>Outcome</th>"
    rows = "".join(map(_row, advice.tried))
    reason = f"<p>{escape(_sentence(advice.reason))}</p>" if advice.reason else ""
    found = _found(advice.found) if advice.found else '<p class="warn">Nothing of this fits.</p>'
    return (
        f'<section id="advice"><h2>What would make it fit</h2>{reason}{found}'
        f'<table class="tried"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        "</section>"
    )


def _found(found: Tried) -> str:
    flags = escape("\n".join(found.flags))
    cautions = "".join(f'<p class="note">{escape(_sentence(one))}</p>' for one in found.cautions)
    return f'<p>{escape(_sentence(found.what))}</p><pre class="flags">{flags}</pre>{cautions}'


def _row(one: Tried) -> str:
    flags = f"<small><code>{escape(' '.join(one.flags))}</code></small>" if one.flags else ""
    kind = ' class="good"' if one.fits else ""
    return f"<tr><td>{escape(one.what)}{flags}</td><td{kind}>{escape(one.outcome)}</td></tr>\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
