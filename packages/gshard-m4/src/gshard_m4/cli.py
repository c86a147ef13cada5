"""The command line `gshard-m4`, also `python -m gshard_m4`.

Every subcommand says what is wrong with its input on standard error, one fault a line, exits with
code 2 and then leaves everything on disk as it was.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from gshard_m4.evaluate import MIN_PHRASES

if TYPE_CHECKING:
    from gshard_m4.scores import Scores, SplitScores

_EVALUATE = """\
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
_EVALUATE_EXAMPLES = """\
examples:
  gshard-m4 evaluate --translations=/tmp/model/translations --output=/tmp/model/report
  gshard-m4 evaluate --translations=/tmp/model/translations/test --output=/tmp/pairs-only
"""


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command: 0, or 2 for input that cannot be used."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    return options.command(options, shlex.join(["gshard-m4", *given]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gshard-m4", description="The M4 task: translation of 102 languages into English."
    )
    parser.add_argument("--version", action="version", version=f"gshard-m4 {version('gshard-m4')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    evaluate = commands.add_parser(
        "evaluate",
        help="score translations per language and write a report",
        description=_EVALUATE,
        epilog=_EVALUATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    evaluate.add_argument(
        "--translations", type=Path, required=True, help="folder of splits, or one split's folder"
    )
    evaluate.add_argument("--output", type=Path, required=True, help="folder for the report")
    evaluate.add_argument(
        "--min-phrases",
        type=int,
        default=MIN_PHRASES,
        metavar="N",
        help="languages with fewer phrases are averaged apart (default: %(default)s)",
    )
    evaluate.set_defaults(command=_evaluate)
    return parser


def _evaluate(options: argparse.Namespace, command: str) -> int:
    from gshard_m4.evaluate import evaluate
    from gshard_m4.report import page
    from gshard_m4.scores import to_csv, to_json
    from gshard_m4.translations import TranslationsError, read_translations

    faults: list[str] = []
    if options.output.exists() and not options.output.is_dir():
        faults.append(f"--output={options.output} is a file; give a folder")
    splits = []
    try:
        splits = read_translations(options.translations)
    except TranslationsError as error:
        faults.extend(error.faults)
    if faults:
        return _refuse("evaluate", faults)
    scores = evaluate(splits, min_phrases=options.min_phrases)
    files = {
        "scores.json": to_json(scores),
        "scores.csv": to_csv(scores),
        "report.html": page(scores, splits, command=command),
    }
    try:
        _write(options.output, files)
    except OSError as error:
        return _refuse("evaluate", [f"cannot write to --output={options.output}: {error}"])
    print(_summary(scores))
    print(f"report: {options.output / 'report.html'}")
    return 0


def _refuse(command: str, faults: Sequence[str]) -> int:
    for fault in faults:
        print(f"gshard-m4 {command}: {fault}", file=sys.stderr)
    return 2


def _write(folder: Path, files: dict[str, str]) -> None:
    """Writes every file beside its place, then moves all there: no half-written report."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = {name: folder / f".{name}.partial" for name in files}
    try:
        for name, text in files.items():
            beside[name].write_text(text, encoding="utf-8", newline="\n")
        for name, path in beside.items():
            path.replace(folder / name)
    finally:
        for path in beside.values():
            path.unlink(missing_ok=True)


def _summary(scores: "Scores") -> str:
    return "\n".join(line for split in scores.splits for line in _split_summary(split, scores))


def _split_summary(split: "SplitScores", scores: "Scores") -> list[str]:
    from gshard_m4.scores import SHORT_FOR_BLEU, best_and_worst

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
