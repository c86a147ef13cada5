"""`gshard-m4 compare`."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gshard_m4.input_error import InputError

if TYPE_CHECKING:
    from gshard_m4.evaluation.scores import LanguageScores, Metric, Scores

DESCRIPTION = """\
Puts systems side by side that gshard-m4 evaluate has scored on the same test set.

Each SYSTEM is a report's folder or its scores.json, and may be given a name: big=reports/big.
Differences are to the first. Where reports have kept the translations, each language is tested
with a paired test, corrected for the number of languages (Holm). Scores with different
signatures, or on different references, are not compared: both sides are named and the exit code
is 2. Languages that one of the systems lacks are left out of everything, and named.

Prints the averages and every language. Writes to OUTPUT, if it is given:
  compare.html   one page to read, sort and filter; opens without a network
  compare.json, compare.csv   the same numbers
"""
EXAMPLES = """\
examples:
  gshard-m4 compare reports/dense reports/moe
  gshard-m4 compare dense=a/scores.json moe=b/scores.json deep=c/scores.json --output=side-by-side
"""


_FILES = ("compare.csv", "compare.html", "compare.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="a report or NAME=report")
    parser.add_argument("--output", type=Path, help="folder for the page and the numbers")
    parser.add_argument(
        "--significance",
        choices=("bootstrap", "randomization", "none"),
        default="bootstrap",
        help="the paired test (default: %(default)s)",
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="of the test (default: 1000 of bootstrap, 10000 of randomization; 25 a language if "
        "more)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="how many languages are tested at a time (default: one a processor)",
    )
    parser.add_argument(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also as PNG and SVG files in OUTPUT",
    )


def command(options: argparse.Namespace, command_line: str) -> int:
    """Compares, prints and writes."""
    import functools

    from gshard_m4 import languages
    from gshard_m4.evaluation.comparison import compare, read_systems
    from gshard_m4.evaluation.replacing import output_faults

    if options.output is not None and (
        faults := list(output_faults(options.output, _FILES, _FILES[-1]))
    ):
        raise InputError(faults)
    find = functools.partial(languages.find, variants=True, others=True)
    systems = read_systems(options.systems, find)
    method = None if options.significance == "none" else options.significance
    lacking = [str(system.path) for system in systems if system.splits is None]
    if method is not None and lacking:
        print(f"no tests: no translations are kept in {', '.join(lacking)}", file=sys.stderr)
        method = None
    scores = compare(systems, method, samples=options.samples, processes=options.processes)
    _print(scores)
    if options.output is not None:
        _write(options, scores, command_line)
        print(f"page: {options.output / 'compare.html'}")
    return 0


def _write(options: argparse.Namespace, scores: "list[Scores]", command_line: str) -> None:
    from gshard_m4.evaluation.comparison import to_csv, to_json
    from gshard_m4.evaluation.replacing import replace_results
    from gshard_m4.report import comparison_page, comparison_picture_files

    files: dict[str, str | bytes] = {
        "compare.csv": to_csv(scores),
        "compare.html": comparison_page(scores, command=command_line),
    }
    if options.pictures:
        files |= comparison_picture_files(scores)
    files["compare.json"] = to_json(scores, list(files))
    replace_results(options.output, files, "compare.json")


def _print(systems: "list[Scores]") -> None:
    from gshard_m4.evaluation.comparison import in_common, left_out
    from gshard_m4.evaluation.ranking import quoted_rows

    for split, rows in in_common(systems):
        if not rows:
            continue
        print(f"{split.title} ({split.name}), {len(rows)} languages that all systems have")
        for metric in systems[0].metrics:
            _print_metric(systems, rows, metric)
        missing = {
            one.name for scores in systems for each in scores.splits if each.name == split.name
            for one in each.languages if one.code not in {row[0].code for row in rows}
        }  # fmt: skip
        if missing:
            print(f"left out, as not all systems have them: {', '.join(sorted(missing))}")
        counted = quoted_rows(rows)
        few = [row[0].name for row in rows if row not in counted]
        if few:
            print(f"not in the means, as they have few phrases: {', '.join(sorted(few))}")
        print()
    sets = left_out(systems)
    if sets:
        print(f"sets left out, as not all systems have them: {sets}")


def _print_metric(
    systems: "list[Scores]", rows: "list[tuple[LanguageScores, ...]]", metric: "Metric"
) -> None:
    """A table of one metric: a row a language, a mean last; * is p < 0.05."""
    import statistics

    from gshard_m4.evaluation.ranking import quoted_rows

    digits = 4 if metric.merged else 1
    names = [scores.name for scores in systems]
    heads = [names[0], *(head for name in names[1:] for head in (name, "Δ"))]
    table = []
    for row in rows:
        values = [one.value(metric.key) for one in row]
        if None not in values:
            table.append((row, [value for value in values if value is not None]))
    if not table:
        return
    counted = quoted_rows([row for row, _ in table])
    means = [
        statistics.fmean(found[i] for row, found in table if row in counted)
        for i in range(len(names))
    ]
    lines = [[metric.title, "", *heads]]
    for row, values in table:
        marks = [
            "*" if metric.key in one.paired and one.paired[metric.key].p_holm < 0.05 else " "
            for one in row[1:]
        ]
        lines.append([row[0].name, row[0].code, *_numbers(values, marks, digits)])
    lines.append(["mean", "", *_numbers(means, [" "] * (len(names) - 1), digits)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        texts = [text.ljust(width) if i < 2 else text.rjust(width)
                 for i, (text, width) in enumerate(zip(line, widths, strict=True))]  # fmt: skip
        print("  ".join(texts).rstrip())
    if any(metric.key in one.paired for row in rows for one in row):
        print("* differs from the first (paired test, p < 0.05 after Holm's correction)")


def _numbers(values: list[float], marks: list[str], digits: int) -> list[str]:
    found = [f"{values[0]:.{digits}f}"]
    for value, mark in zip(values[1:], marks, strict=True):
        found += [f"{value:.{digits}f}", f"{value - values[0]:+.{digits}f}{mark}"]
    return found
