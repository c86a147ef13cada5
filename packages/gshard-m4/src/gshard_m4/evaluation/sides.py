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
from gshard_m4.evaluation.file_names import (
    file_language,
    is_english,
    is_shared_english,
    name_parts,
)
from gshard_m4.evaluation.records import Record, folded, read_records
from gshard_m4.evaluation.translations import Find

# A flag, and the field that its files are given for.
ROLES = {"hypotheses": "prediction", "references": "reference", "sources": "source"}
# With more files than these, it is the folder that is wrong.
_NAMELESS_NAMED = 5
OF_WHICH_LANGUAGE = ": of which language? "
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


def _read_file(
    side: Side, flag: str, faults: list[str], language: languages.Language | None, find: Find
) -> None:
    text = _read_text(side.path, flag, faults)
    if any("language" in record.fields for record in text.records):
        side.by_code = _by_language(text, faults, find)
        if language is not None and flag == "hypotheses" and side.by_code:
            says = f"--language says {language.code}; --languages chooses from several"
            wrong = list(_contradictions(text, {language.code}, says, find))
            faults.extend(wrong)
            side.by_code = {} if wrong else side.by_code
    elif language is not None:
        side.by_code = {language.code: text}
    elif flag == "references":
        side.shared = text
    else:
        faults.append(
            f"--{flag}={side.path}{OF_WHICH_LANGUAGE}Name it with --language, add a language to "
            "every line, or give a folder with a file for each"
        )


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
                code = find(given).code
                wrong = _other_name(code, given, codes)
            except ValueError as error:
                code, wrong = None, str(error)
            if wrong:
                faults.append(f"{text.path} line {record.line}: {wrong}")
            codes[given] = code
        code = codes[given]
        if code is not None:
            found.setdefault(code, Text(text.path, [], text.whole)).records.append(record)
    return found


def _other_name(code: str, given: str, codes: dict[str, str | None]) -> str:
    """A fault where earlier lines have the language under another name; '' where none have."""
    earlier = next((name for name, one in codes.items() if one == code), None)
    if earlier is None:
        return ""
    return f"language {given!r} is {code}, which earlier lines call {earlier!r}; write one of them"


def _contradictions(text: Text, codes: set[str], says: str, find: Find) -> Iterator[str]:
    """Faults where lines name languages other than those of their file; "en" is English."""
    where: dict[str, list[int]] = {}
    for record in text.records:
        given = record.fields.get("language")
        if isinstance(given, str):
            where.setdefault(given, []).append(record.line)
    for given, lines in where.items():
        try:
            found = "en" if is_english(given) else find(given).code
        except ValueError as error:
            yield f"{text.path}{folded(str(error), lines)}"
            continue
        if found not in codes:
            yield f"{text.path}{folded(f'language {given!r}, {says}', lines)}"


def _read_folder(
    side: Side, flag: str, faults: list[str], language: languages.Language | None, find: Find
) -> None:
    if language is not None:
        faults.append(f"--{flag}={side.path} is a folder; --language is for a single file")
        return
    try:
        files = _files(side.path, flag, faults)
    except OSError as error:
        faults.append(f"--{flag}={side.path} cannot be read: {error.strerror}")
        return
    english = [path for path in files if is_shared_english(path.name, find)]
    if flag == "references" and len(english) > 1:
        names = ", ".join(path.name for path in english)
        faults.append(f"--references={side.path}: which is the English of all languages, {names}? "
                      "Give that file, and the folder as --sources")  # fmt: skip
        return
    if flag == "references" and english:
        side.shared = _read_text(english[0], flag, faults)
        says = "the file's name says English"
        faults.extend(_contradictions(side.shared, {"en"}, says, find))
        side.beside = _sources_beside((path for path in files if path not in english), find)
        return
    if flag == "sources" and english:
        chosen = _sources_beside((path for path in files if path not in english), find)
    else:
        chosen = _files_by_language(side.path, flag, files, faults, find)
    for code, path in chosen.items():
        side.by_code[code] = text = _read_text(path, flag, faults)
        if any("language" in record.fields for record in text.records):
            # A translation's or reference's line may well name the language that it is in.
            codes = {code} if flag == "sources" else {code, "en"}
            faults.extend(_contradictions(text, codes, f"the file's name says {code}", find))


def _files(folder: Path, flag: str, faults: list[str]) -> list[Path]:
    """The files in a folder; what would vanish from one of translations is a fault."""
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    files = [
        path for path in inside
        if path.is_file() and (flag == "hypotheses" or not path.name.startswith("_"))
        and not path.name.lower().startswith(_NOT_DATA)
    ]  # fmt: skip
    if files and flag == "hypotheses":
        faults.extend(_not_read(path for path in inside if not path.is_file()))
    return files


def _not_read(paths: Iterable[Path]) -> Iterator[str]:
    """A fault for each path, but for reports."""
    for path in paths:
        if path.is_symlink() and not path.exists():
            yield f"{path} is a link to {path.readlink()}, which is not there"
        elif not path.is_dir():
            yield f"{path} is neither a file nor a folder"
        elif not (path / "report.html").is_file():
            yield f"{path} is a folder, which is not read; move it elsewhere"


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
        find(next(name_parts(name), name))
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
