"""Where the phrases of every language lie: one side (hypotheses, references or sources) of a set.

A side is a file of one language, a file whose lines name their languages, a folder with a file for
each language under any of its codes (`de.txt`, `deu_Latn.devtest`, `newstest2019-ref.deu.txt`,
`de-en.jsonl`), or, for references, English that all languages share: a single file, or the
English file among those of a folder as FLORES and NTREX have it, whose other files are sources.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gshard_m4 import languages
from gshard_m4.evaluation.experts import EXPERTS
from gshard_m4.evaluation.records import Record, read_records
from gshard_m4.evaluation.translations import Find

# A flag, and the field that its files are given for.
ROLES = {"hypotheses": "prediction", "references": "reference", "sources": "source"}
_FORMATS = frozenset(
    {"gz", "txt", "tsv", "jsonl", "hyp", "ref", "src", "dev", "devtest", "test", "out"}
)
_ENGLISH = ("en", "eng", "eng_latn", "english")
# With more files than these, it is the folder that is wrong.
_NAMELESS_NAMED = 5
_NOT_DATA = ("readme", "license", "licence", "copying", EXPERTS)


@dataclass(frozen=True)
class Text:
    """The lines of one language, and the file that they are from and whether it was all right."""

    path: Path
    records: list[Record]
    whole: bool = True


@dataclass
class Side:
    """One side: by language, and English that is everyone's.

    `beside` are the other files in the folder of shared English: their sources, where M4 has the
    language.
    """

    path: Path
    by_code: dict[str, Text] = field(default_factory=dict)
    shared: Text | None = None
    beside: dict[str, Path] = field(default_factory=dict)


def read_side(
    path: Path,
    flag: str,
    faults: list[str],
    *,
    language: languages.Language | None = None,
    find: Find = languages.find,
) -> Side:
    """What lies at the path, every line read; a fault for everything wrong with it.

    Args:
      path: a file or folder.
      flag: hypotheses, references or sources.
      faults: what is wrong is added here.
      language: the language of a file whose lines do not name one.
      find: finds the language of a code, as `languages.find` does.
    """
    side = Side(path)
    if path.is_dir():
        _read_folder(side, flag, faults, language, find)
    elif not path.is_file():
        faults.append(f"--{flag}={path} does not exist")
    else:
        _read_file(side, flag, faults, language, find)
    return side


def file_language(name: str, find: Find = languages.find) -> languages.Language | None:
    """The language that a file's name gives, None if it gives none.

    Raises:
      ValueError: it gives two, or one in a script that is not M4's.
    """
    found, other = {}, None
    for part in _parts(name):
        try:
            language = find(part)
        except ValueError as error:
            if "unknown language" not in str(error):
                other = error
            continue
        found[language.code] = language
    if len(found) > 1:
        names = " and ".join(f"{one.name} ({one.code})" for one in found.values())
        raise ValueError(f"its name gives {names}; rename it, such as {next(iter(found))}.txt")
    if other is not None and not found:
        raise other
    return next(iter(found.values()), None)


def _parts(name: str) -> Iterator[str]:
    """The pieces of a name that may be a code: between dots, of `de-en`, of a seqio task."""
    pieces = [piece for piece in name.split(".") if piece.lower() not in _FORMATS]
    for piece in pieces:
        if piece.startswith("m4_") and piece.endswith("_en"):
            yield piece.removesuffix("_en").rsplit("_", 1)[1]
            continue
        yield piece
        ends = piece.split("-")
        if len(ends) == 2 and any(_is_english(end) for end in ends):
            yield from (end for end in ends if not _is_english(end))


def _is_shared_english(name: str, find: Find) -> bool:
    """Whether a file's name gives English and no other language, as `de.en` does."""
    if not any(_is_english(part) for part in _parts(name)):
        return False
    try:
        return file_language(name, find) is None
    except ValueError:
        return True


def _is_english(code: str) -> bool:
    return code.lower() in _ENGLISH


def _read_file(
    side: Side, flag: str, faults: list[str], language: languages.Language | None, find: Find
) -> None:
    text = _read_text(side.path, flag, faults)
    if any("language" in record.fields for record in text.records):
        side.by_code = _by_language(text, faults, find)
    elif language is not None:
        side.by_code = {language.code: text}
    elif flag == "references":
        side.shared = text
    else:
        faults.append(f"--{flag}={side.path}: of which language? Name it with --language, add a "
                      "language to every line, or give a folder with a file for each")  # fmt: skip


def _read_text(path: Path, flag: str, faults: list[str]) -> Text:
    before = len(faults)
    records = read_records(path, ROLES[flag], faults)
    return Text(path, records, whole=len(faults) == before)


def _by_language(text: Text, faults: list[str], find: Find) -> dict[str, Text]:
    found: dict[str, Text] = {}
    codes: dict[str, str | None] = {}
    for record in text.records:
        given = record.fields.get("language")
        if not isinstance(given, str):
            if text.whole:
                faults.append(f"{text.path} line {record.line}: no language, other lines have one")
            return {}
        if given not in codes:
            try:
                codes[given] = find(given).code
            except ValueError as error:
                codes[given] = None
                faults.append(f"{text.path} line {record.line}: {error}")
        code = codes[given]
        if code is not None:
            found.setdefault(code, Text(text.path, [], text.whole)).records.append(record)
    return found


def _read_folder(
    side: Side, flag: str, faults: list[str], language: languages.Language | None, find: Find
) -> None:
    if language is not None:
        faults.append(f"--{flag}={side.path} is a folder; --language is for a single file")
        return
    try:
        inside = sorted(side.path.iterdir())
    except OSError as error:
        faults.append(f"--{flag}={side.path} cannot be read: {error.strerror}")
        return
    files = [
        path for path in inside
        if path.is_file() and not path.name.startswith((".", "_"))
        and not path.name.lower().startswith(_NOT_DATA)
    ]  # fmt: skip
    english = [path for path in files if _is_shared_english(path.name, find)]
    if flag == "references" and len(english) > 1:
        names = ", ".join(path.name for path in english)
        faults.append(f"--references={side.path}: which is the English of all languages, {names}? "
                      "Give that file, and the folder as --sources")  # fmt: skip
        return
    if flag == "references" and english:
        side.shared = _read_text(english[0], flag, faults)
        side.beside = _sources_beside((path for path in files if path not in english), find)
        return
    if flag == "sources" and english:
        chosen = _sources_beside((path for path in files if path not in english), find)
    else:
        chosen = _files_by_language(side.path, flag, files, faults, find)
    side.by_code = {code: _read_text(path, flag, faults) for code, path in chosen.items()}


def _files_by_language(
    folder: Path, flag: str, files: list[Path], faults: list[str], find: Find
) -> dict[str, Path]:
    found: dict[str, Path] = {}
    nameless: list[Path] = []
    for path in files:
        try:
            language = file_language(path.name, find)
        except ValueError as error:
            faults.append(f"{path}: {error}")
            continue
        if language is None:
            nameless.append(path)
        elif found.setdefault(language.code, path) != path:
            faults.append(f"{path} and {found[language.code].name} are both {language.name} "
                          f"({language.code}); remove one")  # fmt: skip
    if not files:
        inside = ", ".join(path.name for path in sorted(folder.iterdir()) if path.is_dir())
        hint = f"; it has the folders {inside}: give one of them" if inside else ""
        faults.append(f"--{flag}={folder} holds no files{hint}")
    if len(nameless) <= _NAMELESS_NAMED:
        faults.extend(f"{path}: {_unknown(path.name, find)}" for path in nameless)
        return found
    names = ", ".join(path.name for path in nameless[:_NAMELESS_NAMED])
    faults.append(
        f"--{flag}={folder}: {len(nameless)} of its {len(files)} files have no language in their "
        f"names, such as {names}; name them by language, such as de.txt, or give another folder"
    )
    return {}


def _unknown(name: str, find: Find) -> str:
    """What finding the first piece of the name as a language says."""
    try:
        find(next(_parts(name), name))
    except ValueError as error:
        return f"{error}; name files by language, such as de.txt"
    return "unknown language"


def _sources_beside(files: Iterable[Path], find: Find) -> dict[str, Path]:
    """Of every language that M4 has, the file with the plainest code (`fra`, not `fra-CA`)."""
    found: dict[str, Path] = {}
    for path in files:
        try:
            language = file_language(path.name, find)
        except ValueError:
            continue
        if language is not None:
            best = found.get(language.code, path)
            found[language.code] = min(best, path, key=lambda one: (len(one.name), one.name))
    return found
