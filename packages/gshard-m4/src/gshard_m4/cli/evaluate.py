"""`gshard-m4 evaluate`."""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gshard_m4.cli.evaluate_inputs import Inputs
    from gshard_m4.evaluation.scores import Scores

DESCRIPTION = """\
Scores translations into English per language and writes a report.

Give hypotheses and references: plain text (one phrase a line), JSONL or TSV, compressed (.gz) or
not. A folder has one file for each language under any of its codes (de.txt, deu_Latn.devtest,
newstest2019-ref.deu.txt); a single file names the language in every line, or --language does.
References may be one English file for all languages, a folder as FLORES and NTREX have it, or a
prepared directory. The folder of a run, or of its translations, has all of that in itself.

Everything must be there: missing files or lines, counts that differ, repeated ids, empty
references, wrong encoding, unknown languages, files that look mixed up are listed, all at once,
and then nothing is scored and nothing is written (exit code 2).

Writes to OUTPUT, replacing an earlier report but no file of another program:
  report.html   one page to read, sort and filter; opens without a network
  scores.json   all numbers, averages and signatures
  scores.csv    one row a set and language
  *.png, *.svg  the report's pictures
  translations-<set>.jsonl.gz   what was scored, to test another system against it
"""
EXAMPLES = """\
examples:
  gshard-m4 evaluate --hypotheses=hyps --references=flores200_dataset/devtest --output=report
  gshard-m4 evaluate --hypotheses=de.txt --references=en.txt --language=de --output=report
  gshard-m4 evaluate --translations=/tmp/model/translations --output=/tmp/model/report
  gshard-m4 evaluate --hypotheses=hyps --references=refs --metrics=bleu,chrf++,spbleu,ter \\
    --train-sizes=prepared --baseline=bilingual.csv --output=report
  gshard-m4 evaluate --hypotheses=new --references=refs --baseline-hypotheses=old \\
    --significance=bootstrap --output=report
"""


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition(",")
    if not (low.isdecimal() and high.isdecimal() and int(low) <= int(high)):
        raise argparse.ArgumentTypeError(f"{text!r} is not LOW,HIGH, such as 100000,1000000")
    return int(low), int(high)


_SWITCH = {"action": "store_true"}
_WHAT: dict[str, dict[str, Any]] = {
    "--references": {"type": Path, "help": "English: a file, a folder or prepared data"},
    "--sources": {"type": Path, "help": "for copies and examples: a file or folder"},
    "--no-sources": _SWITCH | {"help": "ignore sources that lie beside the references"},
    "--language": {"help": "of single files, by any of its codes"},
    "--languages": {"type": _listed, "metavar": "CODES", "help": "score these only: de,fr,zh"},
    "--any-language": _SWITCH | {"help": "also languages outside M4, and other scripts"},
    "--set": {
        "metavar": "NAME",
        "help": "of the test set, as prepared data has it (default: test)",
    },
    "--as-is": _SWITCH | {"help": "score files even where they look mixed up"},
}
_HOW: dict[str, dict[str, Any]] = {
    "--metrics": {
        "type": _listed,
        "default": ("bleu", "chrf++", "exact"),
        "metavar": "NAMES",
        "help": "of bleu, chrf++, spbleu, ter, exact (default: bleu,chrf++,exact)",
    },
    "--tokenize": {
        "default": "13a",
        "metavar": "NAME",
        "help": "sacrebleu's tokenizer for BLEU (default: %(default)s)",
    },
    "--spbleu-sha256": {"metavar": "HASH", "help": "of a flores200 model that is not the usual"},
    "--merge-scores": {
        "type": Path,
        "action": "append",
        "default": [],
        "metavar": "JSON",
        "help": "scores computed elsewhere, such as COMET's; may be given again",
    },
    "--no-identify": _SWITCH | {"help": "leave out the share in a wrong language"},
    "--min-phrases": {
        "type": int,
        "default": 40,
        "metavar": "N",
        "help": "languages with fewer phrases are averaged apart (default: %(default)s)",
    },
    "--processes": {
        "type": int,
        "default": os.cpu_count() or 1,
        "metavar": "N",
        "help": "how many languages are scored at a time (default: one a processor)",
    },
    "--pictures": {
        "action": argparse.BooleanOptionalAction,
        "default": True,
        "help": "write the report's pictures as PNG and SVG files too",
    },
    "--keep-translations": {
        "action": argparse.BooleanOptionalAction,
        "default": True,
        "help": "write what was scored beside the scores",
    },
}
_AGAINST: dict[str, dict[str, Any]] = {
    "--train-sizes": {
        "type": Path,
        "metavar": "PATH",
        "help": "prepared directory, or JSON or CSV of training rows per language",
    },
    "--band-bounds": {
        "type": _bounds,
        "metavar": "LOW,HIGH",
        "help": "fewer rows than LOW are low, HIGH and more high (default: by rank)",
    },
    "--baseline": {
        "type": Path,
        "metavar": "PATH",
        "help": "another report, its scores.json, or a CSV: language,bleu,chrf++",
    },
    "--baseline-hypotheses": {
        "type": Path,
        "metavar": "PATH",
        "help": "another system's translations, in any form of --hypotheses",
    },
    "--significance": {
        "choices": ("bootstrap", "randomization"),
        "help": "paired test against the baseline's translations",
    },
    "--samples": {
        "type": int,
        "metavar": "N",
        "help": "of the test (default: 1000 of bootstrap, 10000 of randomization; 25 a language if "
        "more)",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("--output", type=Path, required=True, help="folder for the report")
    parser.add_argument("--system", metavar="NAME", help="what to call it (default: from its path)")
    what = parser.add_argument_group("what to score")
    given = what.add_mutually_exclusive_group(required=True)
    given.add_argument("--hypotheses", type=Path, help="translations: a file or a folder")
    given.add_argument("--translations", type=Path, help="a folder that gshard-infer wrote")
    _add(what, _WHAT)
    _add(parser.add_argument_group("how to score"), _HOW)
    _add(parser.add_argument_group("what to compare with"), _AGAINST)


def _add(group: argparse._ArgumentGroup, flags: Mapping[str, Mapping[str, Any]]) -> None:
    for flag, settings in flags.items():
        group.add_argument(flag, **settings)


def command(options: argparse.Namespace, command_line: str) -> int:
    """Scores, writes the report and prints the summary."""
    from gshard_m4.cli.evaluate_inputs import LISTING, read_inputs
    from gshard_m4.evaluation.kept import kept_files
    from gshard_m4.evaluation.replacing import replace_results
    from gshard_m4.evaluation.score_files import to_csv, to_json
    from gshard_m4.evaluation.summary import summary
    from gshard_m4.report import page, picture_files

    inputs = read_inputs(options)
    if sys.stderr.isatty():
        tasks = [task for split in inputs.splits for task in split.tasks]
        phrases = sum(len(task.rows) for task in tasks)
        print(f"scoring {len(tasks)} languages, {phrases:,} phrases", file=sys.stderr)
    scores = replace(_scored(inputs, options), command=command_line)
    files: dict[str, str | bytes] = {
        "scores.csv": to_csv(scores),
        "report.html": page(scores, inputs.splits, command=command_line),
    }
    if options.pictures:
        files |= picture_files(scores, inputs.splits)
    if options.keep_translations:
        files |= kept_files(inputs.splits)
    files[LISTING] = to_json(replace(scores, written=tuple(files)))
    replace_results(options.output, files, LISTING)
    print(summary(scores))
    print(f"report: {options.output / 'report.html'}")
    return 0


def _scored(inputs: "Inputs", options: argparse.Namespace) -> "Scores":
    """Everything that was asked for, one thing after the other."""
    from gshard_m4.evaluation import bands, baseline, merged, significance
    from gshard_m4.evaluation.evaluate import evaluate

    how = {"asked": inputs.asked, "processes": inputs.processes}
    scores = evaluate(
        inputs.splits, min_phrases=options.min_phrases, identify=not options.no_identify, **how
    )
    scores = replace(scores, name=inputs.name)
    if inputs.merged:
        scores = merged.with_merged(scores, inputs.splits, inputs.merged)
    if inputs.sizes is None:
        scores = bands.with_table_bands(scores)
    else:
        source = str(options.train_sizes)
        scores = bands.with_sizes(scores, inputs.sizes, source, options.band_bounds)
    against = inputs.against
    if options.baseline_hypotheses is not None:
        theirs = evaluate(inputs.baseline_splits, identify=False, **how)
        against = baseline.from_scores(theirs, options.baseline_hypotheses.name)
    if against is not None:
        scores = baseline.with_baseline(scores, against)
    if options.significance is not None:
        asked = significance.questions(inputs.baseline_splits, inputs.splits)
        tests, found = significance.answer(
            asked, inputs.asked, options.significance,
            samples=options.samples, processes=inputs.processes,
        )  # fmt: skip
        scores = significance.with_significance(scores, tests, found)
    return scores
