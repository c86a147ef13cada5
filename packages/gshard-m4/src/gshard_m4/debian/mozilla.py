"""Firefox's and Thunderbird's language packs: .xpi archives of Fluent and properties files."""

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator

from gshard_m4.debian.archive import File
from gshard_m4.debian.translations import Translation

_PACK = re.compile(r"langpack-([\w-]+)@([a-z]+)")
_PRODUCTS = {"firefox": "Firefox", "thunderbird": "Thunderbird"}
# Keys and attributes that hold no text to read.
_NO_TEXT = re.compile(r"(?:accesskey|\.key|\.style|\.href|commandkey)$")
_MESSAGE = re.compile(r"(-?[A-Za-z][\w-]*)\s*=\s*(.*)$")
_ATTRIBUTE = re.compile(r"\s+\.([A-Za-z][\w-]*)\s*=\s*(.*)$")
_PROPERTY = re.compile(r"([^=:\s]+)\s*[=:]\s*(.*)$")
_TERM = re.compile(r"\{\s*-([\w-]+)[^}]*\}")
_LITERAL = re.compile(r'\{\s*"([^"]*)"\s*\}')
_PLACEABLE = re.compile(r"\{\s*\$?([\w-]+)[^}]*\}")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")

Texts = dict[tuple[str, str], str]
"""Text of each file and key of a pack."""


def mozilla_english(files: Iterable[File], unreadable: Callable[[str], None]) -> Texts:
    """The texts of the English pack."""
    ours: Texts = {}
    for name, content in files:
        ours |= _texts(name, content, unreadable)[1]
    return ours


def mozilla(
    files: Iterable[File], ours: Texts, unreadable: Callable[[str], None]
) -> Iterator[Translation]:
    """Texts that have the same file and key in the English pack."""
    for name, content in files:
        locale, theirs = _texts(name, content, unreadable)
        for key, text in theirs.items():
            if key in ours:
                yield Translation(locale, ours[key], text)


def _texts(name: str, content: bytes, unreadable: Callable[[str], None]) -> tuple[str, Texts]:
    found = _PACK.search(name)
    if not found:
        return "", {}
    locale, product = found.group(1), _PRODUCTS.get(found.group(2), "Firefox")
    texts: Texts = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as pack:
            for entry in pack.namelist():
                read = _READERS.get(entry.rsplit(".", 1)[-1])
                if read is None:
                    continue
                file = entry.replace(f"/{locale}/", "/@/")
                file = file.replace(f"localization/{locale}", "localization/@")
                for key, text in read(pack.read(entry).decode(), product):
                    texts[file, key] = text
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        unreadable(f"{name}: {error}")
    return locale, texts


def fluent(text: str, product: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a Fluent file, without those that select between forms."""
    for key, value in _fluent_entries(text):
        if "->" not in value and not _NO_TEXT.search(key):
            yield key, _fluent_value(value, product)


def _fluent_entries(text: str) -> Iterator[tuple[str, str]]:
    """Messages and `message.attribute`s with their lines joined."""
    message, key, lines = "", "", list[str]()
    for line in [*text.split("\n"), "end ="]:
        started = _MESSAGE.match(line)
        attribute = _ATTRIBUTE.match(line)
        if line.startswith("#"):
            continue
        if started or (attribute and message):
            value = " ".join(part.strip() for part in lines if part.strip())
            if key and value:
                yield key, value
            if started:
                message = key = started.group(1)
                lines = [started.group(2)]
            elif attribute:
                key = f"{message}.{attribute.group(1)}"
                lines = [attribute.group(2)]
        elif key:
            lines.append(line)


def _fluent_value(value: str, product: str) -> str:
    brands = {
        "brand-short-name": product,
        "brand-shorter-name": product,
        "brand-full-name": f"Mozilla {product}",
        "brand-product-name": product,
        "vendor-short-name": "Mozilla",
    }
    value = _TERM.sub(lambda m: brands.get(m.group(1), m.group(1).replace("-", " ")), value)
    return _PLACEABLE.sub(r"{\1}", _LITERAL.sub(r"\1", value))


def properties(text: str, product: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a Java properties file."""
    del product
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).split("\n"):
        found = _PROPERTY.match(line.strip())
        if found and line.strip()[0] not in "#!":
            value = _ESCAPE.sub(lambda m: chr(int(m.group(1), 16)), found.group(2))
            yield found.group(1), value.replace("\\n", " ").replace("\\", "")


_READERS = {"ftl": fluent, "properties": properties}
