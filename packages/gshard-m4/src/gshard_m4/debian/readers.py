"""The reader of each kind of file: files, files with the English side, and what is unreadable."""

from collections.abc import Callable, Iterable, Iterator

from gshard_m4.debian.archive import File
from gshard_m4.debian.descriptions import descriptions
from gshard_m4.debian.gettext import gettext
from gshard_m4.debian.help_pages import libreoffice_help, mallard
from gshard_m4.debian.mediawiki import mediawiki
from gshard_m4.debian.mozilla import mozilla
from gshard_m4.debian.translations import Translation

Reader = Callable[[Iterable[File], Iterable[File], Callable[[str], None]], Iterator[Translation]]

READERS: dict[str, Reader] = {
    "descriptions": descriptions,
    "gettext": gettext,
    "libreoffice_help": libreoffice_help,
    "mallard": mallard,
    "mediawiki": mediawiki,
    "mozilla": mozilla,
}
