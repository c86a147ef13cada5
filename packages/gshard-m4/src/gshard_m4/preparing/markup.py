"""HTML that was left in text: tags are told from other text between < and >, entities decoded.

`<Ctrl>`, `List<String>`, `<john@example.com>` and `a <b and c> d` are text. A tag is one that HTML
has, one with `name="value"`, one that closes itself, or one of a pair (`<guilabel>`,
`</guilabel>`).
An entity ends with a semicolon: `&copy=3` is part of an address.
"""

import html
import html.entities
import re

# Those that stand in text. Others, such as <title> or <source>, are words for what to fill in more
# often than tags; they count with attributes, or in pairs.
_HTML_NAMES = """
a abbr acronym b bdi bdo big blockquote body br caption center cite code col colgroup dd del
dfn div dl dt em embed fieldset font form frame frameset h1 h2 h3 h4 h5 h6 head hr html i
iframe img ins kbd li marquee meta nobr noscript ol p pre q rb ref rp rt ruby s samp script
small span strike strong style sub sup table tbody td tfoot th thead tr tt u ul var wbr
"""
_HTML = frozenset(_HTML_NAMES.split())
_BOOLEAN = frozenset({"compact", "hidden", "itemscope", "noshade", "nowrap", "reversed"})
_TAG = re.compile(r"<!--.*?-->|<(/?)([A-Za-z][A-Za-z0-9:_-]{0,40})((?:\s[^<>]{0,200})?)>|<(\w+)/>")
_NAME = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9:_-]{0,40})[\s>]")
_ATTRIBUTE = re.compile(r"\s[\w:-]+\s*=\s*[\"'“”„«]")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_AMPERSANDS = re.compile(r"&(?:(?:amp|#0*38|#[xX]0*26);)+")


def without_html(text: str) -> str:
    """The text with each tag as a space and entities decoded; tags they make stay for next time."""
    if "<" in text and _TAG.search(text):
        pairs = _pairs(text)
        text = _TAG.sub(lambda tag: " " if _is_tag(tag, pairs) else tag[0], text)
    if "&" not in text:
        return text
    return _ENTITY.sub(_character, _AMPERSANDS.sub("&", text))


def _pairs(text: str) -> set[str]:
    """The names that are opened and closed."""
    names = [(slash, name.lower()) for slash, name in _NAME.findall(text)]
    closed = {name for slash, name in names if slash}
    return {name for slash, name in names if not slash and name in closed}


def _is_tag(tag: re.Match[str], pairs: set[str]) -> bool:
    slash, name, more, _ = tag.groups()
    if name is None or name.lower() in pairs or _ATTRIBUTE.search(more):
        return True  # a comment, <name/>, ...
    is_key = len(name) == 1 and name.isupper() and name != "P" and not slash  # <B> to press
    if name.lower() not in _HTML or is_key:
        return more.endswith("/")
    words = more.strip(" /")
    return not words or "=" in words or words.lower() in _BOOLEAN


def _character(entity: re.Match[str]) -> str:
    name = entity[0][1:]
    return html.unescape(entity[0]) if name[0] == "#" else html.entities.html5.get(name, entity[0])
