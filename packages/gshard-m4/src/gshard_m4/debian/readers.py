"""The reader of each kind of file."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gshard_m4.debian.archive import File
from gshard_m4.debian.descriptions import descriptions, descriptions_english
from gshard_m4.debian.gettext import gettext
from gshard_m4.debian.help_pages import libreoffice_english, libreoffice_help, mallard
from gshard_m4.debian.mediawiki import mediawiki
from gshard_m4.debian.mozilla import mozilla, mozilla_english
from gshard_m4.debian.translations import Translation

Unreadable = Callable[[str], None]
"""Takes a line about a file that cannot be read; the others are read all the same."""


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads the English side once, where it is a package of its own, and files against it."""

    read: Callable[[Iterable[File], Any, Unreadable], Iterator[Translation]]
    english: Callable[[Iterable[File], Unreadable], Any] = lambda files, unreadable: None


READERS = {
    "descriptions": Reader(descriptions, descriptions_english),
    "gettext": Reader(gettext),
    "libreoffice_help": Reader(libreoffice_help, libreoffice_english),
    "mallard": Reader(mallard),
    "mediawiki": Reader(mediawiki),
    "mozilla": Reader(mozilla, mozilla_english),
}
