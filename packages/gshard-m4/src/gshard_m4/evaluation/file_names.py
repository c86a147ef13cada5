"""The language that a file's name gives (`de.txt`, `deu_Latn.devtest`, `de-en.jsonl`)."""

from collections.abc import Iterator

from gshard_m4 import languages
from gshard_m4.evaluation.translations import Find

_FORMATS = frozenset(
    {"gz", "txt", "tsv", "jsonl", "hyp", "ref", "src", "dev", "devtest", "test", "out"}
)
_ENGLISH = ("en", "eng", "eng_latn", "english")


def file_language(name: str, find: Find = languages.find) -> languages.Language | None:
    """The language that a file's name gives, None if it gives none.

    Raises:
      ValueError: it gives two, or one in a script that is not M4's, or says that it is translated
        from English.
    """
    found, other = {}, None
    for part in name_parts(name):
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
    language = next(iter(found.values()), None)
    if language is not None and _is_from_english(name, find):
        raise ValueError(f"its name says English into {language.name}; translations into English "
                         f"are read here, named such as {language.code}.txt")  # fmt: skip
    return language


def name_parts(name: str) -> Iterator[str]:
    """The pieces of a name that may be a code: between dots, of `de-en`, of a seqio task."""
    for piece in _pieces(name):
        if piece.startswith("m4_") and piece.endswith("_en"):
            yield piece.removesuffix("_en").rsplit("_", 1)[1]
            continue
        yield piece
        yield from (end for end in _pair(piece) if not is_english(end))


def is_shared_english(name: str, find: Find) -> bool:
    """Whether a file's name gives English and no other language, as `de.en` does."""
    if not any(is_english(part) for part in name_parts(name)):
        return False
    try:
        return file_language(name, find) is None
    except ValueError:
        return True


def is_english(code: str) -> bool:
    """Whether it is one of the codes of English that files have."""
    return code.lower() in _ENGLISH


def _pieces(name: str) -> list[str]:
    return [piece for piece in name.split(".") if piece.lower() not in _FORMATS]


def _pair(piece: str) -> tuple[str, ...]:
    """The two ends of `de-en`; none where there are no two, or `eng-IN` is English of a region."""
    first, _, second = piece.partition("-")
    of_region = is_english(first) and len(second) == 2 and second.isupper()
    there = "-" in piece and (is_english(first) or is_english(second)) and "-" not in second
    return (first, second) if there and not of_region else ()


def _is_from_english(name: str, find: Find) -> bool:
    """Whether `en-de` is all that the name says; in `en-de.de` it is but the name of a corpus."""
    pieces = _pieces(name)
    pairs = [piece for piece in pieces if _pair(piece) and is_english(_pair(piece)[0])]
    return bool(pairs) and not any(
        is_english(piece) or _is_language(piece, find) for piece in pieces if piece not in pairs
    )


def _is_language(piece: str, find: Find) -> bool:
    try:
        find(piece)
    except ValueError:
        return False
    return True
