"""Compiled gettext catalogues (.mo): programs' messages, LibreOffice's, Wesnoth's stories."""

import re
import struct
from collections.abc import Callable, Iterable, Iterator

from gshard_m4.debian.archive import File
from gshard_m4.debian.translations import Translation

# The folder above LC_MESSAGES, or the end of the name: WordPress has admin-de_DE.mo.
_LOCALE = re.compile(
    r"/([A-Za-z]{2,4}(?:[_@-][A-Za-z0-9]+)*)/LC_MESSAGES/[^/]+\.mo$"
    r"|/(?:[a-z-]+-)?([a-z]{2,3}(?:_[A-Z]{2})?)\.mo$"
)
_CHARSET = re.compile(rb"charset=([\w.-]+)")
_BYTE_ORDERS = {0x950412DE: "<", 0xDE120495: ">"}
# Messages that stand for the translators' own names.
_CREDITS = re.compile(
    r"translator[-_ ]credits|(?:NAME|EMAIL) OF TRANSLATORS|Your (?:names|emails)$"
)


def gettext(
    files: Iterable[File], ours: None, unreadable: Callable[[str], None]
) -> Iterator[Translation]:
    """Messages of every catalogue; the English is in the catalogue itself."""
    del ours
    for name, content in files:
        found = _LOCALE.search(name)
        if not found:
            unreadable(f"{name}: no locale in its path")
            continue
        locale = found.group(1) or found.group(2)
        try:
            for message, translation in messages(content):
                yield Translation(locale, message, translation)
        except (struct.error, UnicodeDecodeError, LookupError, ValueError) as error:
            unreadable(f"{name}: {error}")


def messages(content: bytes) -> Iterator[tuple[str, str]]:
    """Messages and translations of a catalogue, without context; plurals as two pairs.

    Raises:
        ValueError: for bytes that are no catalogue.
    """
    order = _BYTE_ORDERS.get(struct.unpack("<I", content[:4])[0])
    if order is None:
        raise ValueError("no gettext catalogue")
    count, at_messages, at_translations = struct.unpack(order + "3I", content[8:20])
    charset = "utf-8"
    table = zip(
        _strings(content, order, count, at_messages),
        _strings(content, order, count, at_translations),
        strict=True,
    )
    for message, translation in table:
        if not message:
            found = _CHARSET.search(translation)
            charset = found.group(1).decode("ascii") if found else charset
        else:
            yield from _forms(message.decode(), translation.decode(charset))


def _strings(content: bytes, order: str, count: int, at: int) -> Iterator[bytes]:
    table = struct.unpack_from(f"{order}{2 * count}I", content, at)
    for length, offset in zip(table[::2], table[1::2], strict=True):
        yield content[offset : offset + length]


def _forms(message: str, translation: str) -> Iterator[tuple[str, str]]:
    message = message.rsplit("\x04", 1)[-1]
    if _CREDITS.search(message):
        return
    if "\0" not in message:
        yield message, translation
        return
    singular, plural = message.split("\0")[:2]
    forms = translation.split("\0")
    if len(forms) > 1:
        yield singular, forms[0]
    yield plural, forms[-1]
