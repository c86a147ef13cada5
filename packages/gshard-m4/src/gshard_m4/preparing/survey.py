"""Looking at the input before anything is prepared: hashes, counts, and all that is wrong."""

import codecs
import contextlib
import dataclasses
import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence

from gshard_m4 import scripts
from gshard_m4.input_error import InputError
from gshard_m4.sources.files import DAMAGED, File, damaged, not_utf8, open_binary
from gshard_m4.sources.parts import Part
from gshard_m4.sources.readers import parquet_rows, rows, texts

_CHUNK = 1 << 20
_SAMPLE = 400  # first rows of a part, for its direction
_ENOUGH_WORDS = 60
# Among the most frequent words of English, and rare in other languages that use its letters.
_ENGLISH_WORDS = frozenset(
    [
        "about", "all", "and", "are", "be", "been", "by", "can", "for", "from", "has", "have", "if",
        "is", "it", "not", "of", "that", "the", "their", "there", "they", "this", "was", "what",
        "when", "which", "will", "with", "would", "you", "your",
    ]
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z]+")


@dataclasses.dataclass(frozen=True)
class FileSurvey:
    """The SHA-256 of a file's content, its lines or rows, and what is wrong with it."""

    sha256: str
    lines: int
    faults: tuple[str, ...] = ()


def survey_file(file: File) -> FileSurvey:
    """Reads a file once: its hash after decompression, its lines, and whether all are UTF-8."""
    if file.name.endswith(".parquet"):
        with file.path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return FileSurvey(digest, parquet_rows(file))
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    count, last = 0, b"\n"
    try:
        with open_binary(file) as opened:
            while chunk := opened.read(_CHUNK):
                decoder.decode(chunk)
                digest.update(chunk)
                count += chunk.count(b"\n")
                last = chunk[-1:]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line = count + error.object[: error.start].count(b"\n") + 1
        return FileSurvey("", count, (not_utf8(file, line, error),))
    except DAMAGED as error:
        return FileSurvey("", count, (damaged(file, count, error),))
    return FileSurvey(digest.hexdigest(), count + (last != b"\n"))


def part_rows(part: Part, found: Mapping[File, FileSurvey]) -> int:
    """About how many rows a part has: lines of its (source side's) file."""
    return found[part.files[0]].lines


def part_faults(part: Part, found: Mapping[File, FileSurvey]) -> list[str]:
    """What is wrong with a part: sides of different length or the wrong way round, bad columns."""
    if any(found[file].faults for file in part.files):
        return []
    try:
        if len(part.files) == 2 and (fault := _misaligned(part, found)):
            return [fault]
        with contextlib.closing(rows(part)) as opened:
            sample = list(itertools.islice(opened, _SAMPLE))
    except InputError as error:
        return list(error.faults)
    fault = _wrong_way_round(part, [row[0] for row in sample], [row[1] for row in sample])
    return [fault] if fault else []


def _misaligned(part: Part, found: Mapping[File, FileSurvey]) -> str | None:
    counts = [found[file].lines for file in part.files]
    if part.reader == "sgm":
        counts = [sum(1 for _ in texts(file, part)) for file in part.files]
    if counts[0] == counts[1]:
        return None
    source, english = part.files
    first = _first_empty_side(part, min(counts))
    hint = f"; the first line that is empty on one side only is {first}" if first else ""
    return (
        f"{part.language}: {source} has {counts[0]} lines, {english} has {counts[1]}; line"
        f" {min(counts) + 1} has no partner{hint}. Download both again, or mend the sides"
    )


def _first_empty_side(part: Part, count: int) -> int | None:
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(contextlib.closing(texts(f, part))) for f in part.files]
        for number, (a, b) in enumerate(itertools.islice(zip(*sides, strict=False), count), 1):
            if bool(a.strip()) != bool(b.strip()):
                return number
    return None


def _wrong_way_round(part: Part, sources: Sequence[str], english: Sequence[str]) -> str | None:
    """The fault of sides that are swapped, by the English side's script and frequent words."""
    where = " and ".join(str(file) for file in part.files)
    remedy = f"if the sides are swapped, give --swapped={part.language}"
    script = scripts.main_script(" ".join(english))
    if script is not None and script != "Latn":
        return f"{part.language}: the English side of {where} is written in {script}; {remedy}"
    in_source, in_english = _english_share(sources), _english_share(english)
    if in_source is None or in_english is None or in_source < 0.12 or in_source < 2 * in_english:
        return None
    return (
        f"{part.language}: {in_source:.0%} of the words of the {part.language} side of {where} are"
        f" frequent English ones, {in_english:.0%} of those of the English side; {remedy}"
    )


def _english_share(texts_: Sequence[str]) -> float | None:
    words = [word.casefold() for text in texts_ for word in _WORD.findall(text)]
    if len(words) < _ENOUGH_WORDS:
        return None
    return sum(word in _ENGLISH_WORDS for word in words) / len(words)
