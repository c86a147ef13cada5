"""`gshard-m4 languages`."""

import argparse
import dataclasses
import difflib
import json
import unicodedata
from collections.abc import Iterable, Sequence

from gshard_m4 import languages
from gshard_m4.input_error import InputError
from gshard_m4.languages import BANDS, LANGUAGES, OTHER_LANGUAGES, Language

DESCRIPTION = """\
Prints the 102 languages of M4, or looks codes up.

A code may be any that people meet: ISO 639, BCP-47, FLORES (zho_Hans), NTREX (fra-CA), MADLAD
(<2de>), gettext (sr@latin), MediaWiki, Google's old ones (iw, jw, tl), or an English name. Another
script than the language's own is refused, and so is a language outside M4: both are found with
--any-language. Codes that cannot be found are listed, all at once, with near names (exit code 2).

Columns: code; name; script (ISO 15924); family and branch; band of resources, high, mid or low, 25,
52 and 25 languages as in M4, by rank; size, in billions of tokens, in mC4 (arXiv 2010.11934), which
the rank is from; other codes.
"""
EXAMPLES = """\
examples:
  gshard-m4 languages --band=low --script=Latn
  gshard-m4 languages iw zho_Hans '<2ps>' npi
  gshard-m4 languages --any-language zho_Hant oci_Latn
  gshard-m4 languages --family=Slavic --json
"""
COLUMNS = ("code", "name", "script", "family", "band", "size", "other codes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("codes", nargs="*", metavar="CODE", help="codes or names to look up")
    parser.add_argument("--band", choices=BANDS, help="only languages of this band")
    parser.add_argument("--script", help="only languages in this script, such as Cyrl")
    parser.add_argument("--family", help="only languages of this family or branch")
    parser.add_argument(
        "--any-language",
        action="store_true",
        help="also languages outside M4 that public sets have, and other scripts of a language",
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects instead")


def command(options: argparse.Namespace, command_line: str) -> int:
    """Prints the languages that were asked for."""
    del command_line
    everything = (*LANGUAGES, *OTHER_LANGUAGES) if options.any_language else LANGUAGES
    faults: list[str] = []
    rows = _looked_up(options, faults) if options.codes else [("", one) for one in everything]
    faults.extend(_unknown_filters(options, everything))
    if faults:
        raise InputError(faults)
    rows = [(given, one) for given, one in rows if _fits(one, options)]
    if options.json:
        print(json.dumps([_object(*row) for row in rows], ensure_ascii=False, indent=1))
    elif rows:
        print(_table(rows, with_given=bool(options.codes)))
        print(f"\n{len(rows)} of {len(options.codes or everything)}")
    else:
        print("no language fits")
    return 0


def _looked_up(options: argparse.Namespace, faults: list[str]) -> list[tuple[str, Language]]:
    rows = []
    for code in options.codes:
        any_language = options.any_language
        try:
            rows.append((code, languages.find(code, variants=any_language, others=any_language)))
        except ValueError as error:
            faults.append(str(error))
    return rows


def _unknown_filters(options: argparse.Namespace, known: Iterable[Language]) -> Iterable[str]:
    """A filter that no language has is a slip, not a question."""
    scripts = sorted({one.script for one in known})
    families = sorted({name for one in known for name in (one.family, one.branch)})
    for flag, given, names in (
        ("--script", options.script, scripts),
        ("--family", options.family, families),
    ):
        if given is not None and given.casefold() not in map(str.casefold, names):
            near = difflib.get_close_matches(given.capitalize(), names, n=3)
            known_names = f"did you mean {', '.join(near)}?" if near else ", ".join(names)
            yield f"{flag}={given} is of no language; {known_names}"


def _fits(language: Language, options: argparse.Namespace) -> bool:
    families = (language.family.casefold(), language.branch.casefold())
    return (
        (options.band is None or language.band == options.band)
        and (options.script is None or language.script.casefold() == options.script.casefold())
        and (options.family is None or options.family.casefold() in families)
    )


def _object(given: str, language: Language) -> dict[str, object]:
    looked_up = {"given": given} if given else {}
    return {**looked_up, **dataclasses.asdict(language)}


def _table(rows: Sequence[tuple[str, Language]], *, with_given: bool) -> str:
    header = [*(["given"] if with_given else []), *COLUMNS]
    cells = [[*([given] if with_given else []), *_cells(one)] for given, one in rows]
    table = [header, *cells]
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    sizes = header.index("size")
    return "\n".join(
        "  ".join(
            _padded(cell, width, right=at == sizes)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def _cells(language: Language) -> list[str]:
    size = "-" if language.mc4_tokens is None else f"{language.mc4_tokens:g}"
    branch = "" if language.branch == language.family else f", {language.branch}"
    return [
        language.code,
        language.name,
        language.script,
        language.family + branch,
        language.band or "-",
        size,
        " ".join(language.aliases),
    ]


def _padded(cell: str, width: int, *, right: bool) -> str:
    spaces = " " * (width - _width(cell))
    return spaces + cell if right else cell + spaces


def _width(cell: str) -> int:
    """Columns of a terminal: two for East Asian wide characters, none for combining marks."""
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in cell
    )
