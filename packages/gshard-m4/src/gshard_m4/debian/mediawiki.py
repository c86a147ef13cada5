"""MediaWiki's messages: a JSON file a language, beside `en.json`."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from gshard_m4.debian.archive import File
from gshard_m4.debian.translations import Translation

_LINK = re.compile(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]")
_CODE = ("{{", "<", "[http", "[$", "[[Special")


def mediawiki(
    files: Iterable[File], ours: None, unreadable: Callable[[str], None]
) -> Iterator[Translation]:
    """Messages that have the same folder and key in English; none with templates or markup."""
    del ours
    folders: dict[str, dict[str, bytes]] = defaultdict(dict)
    for name, content in files:
        folder, _, file = name.rpartition("/")
        folders[folder][file.removesuffix(".json")] = content
    for folder, contents in sorted(folders.items()):
        english = _messages(f"{folder}/en.json", contents.pop("en", b"{}"), unreadable)
        for locale, content in sorted(contents.items()):
            # Documentation for translators.
            if locale == "qqq":
                continue
            theirs = _messages(f"{folder}/{locale}.json", content, unreadable)
            for key, text in theirs.items():
                if key in english:
                    yield Translation(locale, english[key], text)


def _messages(name: str, content: bytes, unreadable: Callable[[str], None]) -> dict[str, str]:
    try:
        found = json.loads(content)
    except ValueError as error:
        unreadable(f"{name}: {error}")
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        key: _plain(text)
        for key, text in found.items()
        if isinstance(text, str) and not any(code in text for code in _CODE)
    }


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("'''", "").replace("''", "")
