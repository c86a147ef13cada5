"""`gshard-m4 evaluate`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gshard_m4.evaluation.evaluate import MIN_PHRASES
from gshard_m4.input_error import InputError

if TYPE_CHECKING:
    from gshard_m4.evaluation.scores import Scores, SplitScores

DESCRIPTION = """\
Scores translations into English per language and writes a report.

Reads what decoding wrote: TRANSLATIONS/<split>/<task>.jsonl, one object a line with id, source,
reference, prediction and truncated, and TRANSLATIONS/<split>/manifest.json. The language is taken
from the task's name, m4_<corpus>_<language>_en. Everything must be there: missing files or lines,
repeated ids, empty references, broken JSON and unknown languages are listed, all at once, and
then nothing is scored and nothing is written (exit code 2).

Writes to OUTPUT, replacing an earlier report:
  report.html   one page to read, sort and filter; opens without a network
  scores.json   all numbers, averages and sacrebleu's signatures
  scores.csv    one row a split and language
"""
EXAMPLES = """\
examples:
  gshard-m4 evaluate --translations=/tmp/model/translations --output=/tmp/model/report
  gshard-m4 evaluate --translations=/tmp/model/translations/test --output=/tmp/pairs-only
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "--translations", type=Path, required=True, help="folder of splits, or one split's folder"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the report")
    parser.add_argument(
        "--min-phrases",
        type=int,
        default=MIN_PHRASES,
        metavar="N",
        help="languages with fewer phrases are averaged apart (default: %(default)s)",
    )


def command(options: argparse.Namespace, command_line: str) -> int:
    """Scores, writes the report and prints the summary."""
    from gshard_m4.evaluation.evaluate import evaluate
    from gshard_m4.evaluation.score_files import to_csv, to_json
    from gshard_m4.evaluation.translations import read_translations
    from gshard_m4.report import page
    from gshard_m4.writing import write_all

    faults: list[str] = []
    if options.output.exists() and not options.output.is_dir():
        faults.append(f"--output={options.output} is a file; give a folder")
    splits = []
    try:
        splits = read_translations(options.translations)
    except InputError as error:
        faults.extend(error.faults)
    if faults:
        raise InputError(faults)
    scores = evaluate(splits, min_phrases=options.min_phrases)
    files = {
        "scores.json": to_json(scores),
        "scores.csv": to_csv(scores),
        "report.html": page(scores, splits, command=command_line),
    }
    try:
        write_all(options.output, files)
    except OSError as error:
        raise InputError([f"cannot write to --output={options.output}: {error}"]) from None
    print(_summary(scores))
    print(f"report: {options.output / 'report.html'}")
    return 0


def _summary(scores: "Scores") -> str:
    return "\n".join(line for split in scores.splits for line in _split_summary(split, scores))


def _split_summary(split: "SplitScores", scores: "Scores") -> list[str]:
    from gshard_m4.evaluation.scores import SHORT_FOR_BLEU, best_and_worst

    lines = [f"{split.title} ({split.name}), checkpoint step {split.checkpoint_step}"]
    kinds = [("", split.macro), (f", fewer than {scores.min_phrases} phrases", split.macro_few)]
    for kind, macro in kinds:
        if macro is not None:
            lines.append(
                f"  mean of {macro.counted}{kind}: chrF++ {macro.mean['chrfpp']:.1f}, "
                f"exactly right {macro.mean['exact']:.1%}, BLEU {macro.mean['bleu']:.1f}"
            )
    short = split.headline.mean["short"]
    if short >= SHORT_FOR_BLEU:
        lines.append(f"  {short:.0%} of references have under four tokens: go by chrF++, not BLEU")
    best, worst = best_and_worst(split)
    for name, languages in (("best", best), ("worst", worst)):
        for one in languages:
            lines.append(
                f"  {name:5}  {one.name:16} {one.code:4} chrF++ {one.chrfpp:5.1f}  "
                f"exact {one.exact:6.1%}"
            )
    return [*lines, ""]
