"""From a folder and a layout to the parts of a corpus: a language, a split, and files to read."""

import collections
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gshard_m4.input_error import InputError
from gshard_m4.languages import ENGLISH, Language, is_english
from gshard_m4.sources.codes import WITHOUT_ENGLISH
from gshard_m4.sources.files import File, files_below, lines
from gshard_m4.sources.layouts import SPLITS, Form, Layout
from gshard_m4.sources.parts import Part, Scan

Resolve = Callable[[str], Language]


def scan(root: Path, layout: Layout, resolve: Resolve) -> Scan:
    """The parts of a corpus below a folder, by code and split.

    Args:
        root: a folder, or one file.
        layout: of the table.
        resolve: a code's language; raises ValueError for one that is unknown, and LookupError for
            one that is known and not wanted.

    Raises:
        InputError: nothing there is of this layout, or it is monolingual.
    """
    if not root.exists():
        raise InputError([f"--input={root} does not exist"])
    files, packed = files_below(root)
    matched = matches(files, layout)
    if not matched:
        raise InputError([*packed, nothing_found(root, layout, files)])
    if layout.monolingual:
        raise InputError([f"{root}: {layout.monolingual}"])
    found = Scan(left_out=list(packed))
    by_form = collections.defaultdict(list)
    for file, form, match in matched:
        by_form[form].append((file, match))
    for form, members in by_form.items():
        if form.reader == "matrix":
            _add_matrix(found, layout, form, members, resolve)
        elif "side" in members[0][1].groupdict():
            _add_sides(found, layout, form, members, resolve)
        else:
            _add_files(found, layout, form, members, resolve)
    _note_others(found, layout, files)
    found.faults.sort()
    found.parts.sort(key=lambda part: (part.language, part.split, part.name))
    _one_text_of_a_news_set(found)
    _newest_news_is_the_test(found)
    return found


def _note_others(found: Scan, layout: Layout, files: list[File]) -> None:
    """Files that are neither read nor told about."""
    read = {file for part in found.parts for file in part.files}
    others = [file.name for file in files if file not in read and file.name not in found.told]
    if others:
        listed = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        found.left_out.append(f"files that are no text of {layout.kind}: {listed}")


def matches(files: Iterable[File], layout: Layout) -> list[tuple[File, Form, re.Match[str]]]:
    """Each file that a form of the layout matches, with the first that does."""
    found = []
    for file in files:
        for form in layout.forms:
            match = form.match(file.name)
            if match is not None:
                found.append((file, form, match))
                break
    return found


def nothing_found(root: Path, layout: Layout, files: list[File]) -> str:
    """The fault of a folder without files of a layout."""
    there = ", ".join(file.name for file in files[:4]) or "nothing"
    more = f" and {len(files) - 4} more" if len(files) > 4 else ""
    return f"{root} has no files of --source={layout.kind} ({layout.what}); it has {there}{more}"


def _part(layout: Layout, form: Form, language: Language, split: str, files, columns, spelling):
    stem = files[0].name.split("/")[-1].split(".")[0]
    origin = stem if layout.kind in ("moses", "wmt") and stem != spelling else layout.kind
    return Part(
        layout.kind, language.code, language.script, split, tuple(files), form.reader,
        tuple(columns), spelling, origin,
    )  # fmt: skip


def _split(match: re.Match[str], form: Form) -> str:
    """The split a match names, else a word of the file's name or its folder, else the form's."""
    named = match.groupdict().get("split")
    if named:
        return SPLITS.get(named, named)
    *folders, name = match.string.split("/")
    words = [*folders[-1:], *re.split(r"[._-]", name)]
    stems = [re.sub(r"\d+$", "", word) for word in reversed(words)]  # tst2013, newstest2014
    return next((SPLITS[stem] for stem in stems if stem in SPLITS), form.split)


def _find(
    found: Scan, resolve: Resolve, spelling: str, file: File, where: str = ""
) -> Language | None:
    """The language of a spelling; a fault or a note, with the file, where there is none."""
    try:
        return resolve(spelling)
    except LookupError as error:
        found.leave_out(file, f"{where}{error.args[0]}" if error.args[0] else "")
    except ValueError as error:
        found.fault(file, f"{where}{error}")
    return None


def _add_files(found: Scan, layout: Layout, form: Form, members, resolve: Resolve) -> None:
    """Files with both sides: a pair names the order of the columns, a code has English second."""
    for file, match in members:
        groups = match.groupdict()
        a, b = (groups["a"], groups["b"]) if groups.get("a") else _pair_of(groups["code"])
        english_first = is_english(a) and not is_english(b)
        if not (is_english(a) or is_english(b)):
            joined = f"{a}-{b}"  # a tag with a region, such as zh-CN, looks like a pair
            if not layout.general or not _is_code(resolve, joined):
                found.leave_out(file, WITHOUT_ENGLISH)
                continue
            a, b = joined, "en"
        spelling = b if english_first else a
        if form.any_name and not _is_near_a_code(resolve, spelling):
            found.leave_out(file, "no language in its name")
            continue
        language = _find(found, resolve, spelling, file)
        if language is not None:
            columns = form.columns[::-1] if english_first else form.columns
            found.parts.append(
                _part(layout, form, language, _split(match, form), [file], columns, spelling)
            )


def _pair_of(code: str) -> tuple[str, str]:
    """The columns of a file that a code names; `de_en` is a pair as `de-en` is."""
    first, _, second = code.partition("_")
    if second.islower() and is_english(first) != is_english(second):
        return first, second
    return code, "en"


def _is_near_a_code(resolve: Resolve, name: str) -> bool:
    """Whether a name is a language's, or so near one that it was meant to be."""
    try:
        resolve(name)
    except LookupError:
        return True
    except ValueError as error:
        return "did you mean" in str(error)
    return True


def _is_code(resolve: Resolve, code: str) -> bool:
    try:
        resolve(code)
    except LookupError:
        return True
    except ValueError:
        return False
    return True


def _add_sides(found: Scan, layout: Layout, form: Form, members, resolve: Resolve) -> None:
    """Files of one side each: every language of a group beside the group's English."""
    groups = collections.defaultdict(list)
    for file, match in members:
        groups[_without_side(match)].append((_side(match), file, match))
    for sides in groups.values():
        english = sorted(((len(s), f.name, f) for s, f, _ in sides if is_english(s)))
        others = [(s, f, m) for s, f, m in sides if not is_english(s)]
        if english:
            _add_group(found, layout, form, english, others, resolve)
        elif not layout.general:
            for _, file, _ in others:
                found.leave_out(file, WITHOUT_ENGLISH)


def _add_group(found: Scan, layout: Layout, form: Form, english, others, resolve: Resolve) -> None:
    """The files of one text, of which the English ones are sorted with the plainest code first."""
    _, name, english_file = english[0]
    for _, _, file in english[1:]:
        found.leave_out(file, f"the English side is {name}")
    if not others and not layout.general:
        found.fault(english_file, "English alone; its other side is missing")
    taken: dict[str, str] = {}
    for spelling, file, match in sorted(others, key=_plain_code_first):
        language = _find(found, resolve, spelling, file)
        if language is None:
            continue
        if form.one_per_language and language.code in taken:
            kept = taken[language.code]
            found.leave_out(file, f"a further text of {language.code} ({kept})")
            continue
        taken[language.code] = file.name
        split = _split(match, form)
        pair = [file, english_file]
        found.parts.append(_part(layout, form, language, split, pair, form.columns, spelling))


def _plain_code_first(side: tuple[str, File, re.Match[str]]) -> tuple[int, int, str]:
    spelling, file, match = side
    return len(spelling), len(match.groupdict().get("role") or ""), file.name


def _side(match: re.Match[str]) -> str:
    """The language of a one-sided file; `src` and `trg` stand for the pair's two."""
    groups = match.groupdict()
    return {"src": groups.get("a"), "trg": groups.get("b")}.get(groups["side"]) or groups["side"]


def _without_side(match: re.Match[str]) -> str:
    """What the files of one text have in common: the name without its side and role."""
    name = match.string
    spans = [match.span(group) for group in ("side", "role") if group in match.groupdict()]
    for start, end in sorted(spans, reverse=True):
        name = f"{name[:start]}*{name[end:]}"
    return name


def _add_matrix(found: Scan, layout: Layout, form: Form, members, resolve: Resolve) -> None:
    """One file with a column for each language; the columns' names are in its first line."""
    for file, match in members:
        with contextlib.closing(lines(file)) as content:
            header = next(content, "").split("\t")
        english = [name for name in header if is_english(name)]
        if not english:
            found.fault(file, f"no column 'en' in its first line {header[:6]}")
            continue
        taken: dict[str, str] = {}
        for spelling in sorted(header[1:], key=lambda name: (-len(name), name)):
            if is_english(spelling):
                continue
            language = _find(found, resolve, spelling, file, f"column {spelling}: ")
            if language is not None and language.code in taken:
                kept = taken[language.code]
                found.leave_out(file, f"column {spelling}: {language.code} is {kept}")
            elif language is not None:
                taken[language.code] = spelling
                columns = (header.index(spelling), header.index(english[0]))
                found.parts.append(
                    _part(layout, form, language, _split(match, form), [file], columns, spelling)
                )


def _one_text_of_a_news_set(found: Scan) -> None:
    """WMT: a language's news set of a year once; rather the one from the language into English."""
    kept: dict[tuple[str, str], Part] = {}
    for part in sorted(found.parts, key=lambda part: f"{part.split}-{ENGLISH}" in part.name):
        first = kept.setdefault((part.language, part.split), part)
        if first is not part and part.split.startswith("news"):
            found.parts.remove(part)
            for file in part.files:
                found.leave_out(file, f"a further text of {part.language} ({first.name})")


def _newest_news_is_the_test(found: Scan) -> None:
    """WMT: of a language's news sets the newest newstest is the test set, others validation."""
    newest: dict[str, str] = {}
    for part in found.parts:
        if part.split.startswith("newstest"):
            newest[part.language] = max(part.split, newest.get(part.language, ""))
    for i, part in enumerate(found.parts):
        if part.split.startswith("news"):
            split = "test" if part.split == newest.get(part.language) else "validation"
            found.parts[i] = dataclasses.replace(part, split=split, origin=part.split)
