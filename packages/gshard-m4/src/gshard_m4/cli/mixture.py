"""`gshard-m4 mixture`."""

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Any

from gshard_m4 import languages, mixture
from gshard_m4.asked_languages import codes_in
from gshard_m4.corpus import Corpus, open_corpus
from gshard_m4.input_error import InputError

DESCRIPTION = """\
Shows what training sees of each language: its share of the examples at a temperature, how many of
a batch, and how often all of its rows are seen within a budget.

The share of a language with n training rows is n^(1/T), scaled so that all sum to 1. --maximum caps
n before the temperature acts; --minimum-share then lifts whatever is below it. The training feed
and the seqio mixtures take the same three settings and have the same shares.

Columns: code; name; band; rows of training text (an epoch); share; examples of a batch, on average;
epochs within the budget. The budget is given in steps, examples or tokens of both sides; the tokens
of an example are the mean of 4,096 of them with the directory's vocabulary. Without a budget it is
as many examples as there are rows. Languages without training rows are left out, and named.
"""
EXAMPLES = """\
examples:
  gshard-m4 mixture /data/m4 --batch-size=4096 --steps=300000
  gshard-m4 mixture /data/m4 --temperature=1 --maximum=1000000 --minimum-share=0.001
  gshard-m4 mixture /data/m4 --languages=de,fr,zh --tokens=1000000000 --json
  gshard-m4 mixture m4_sample --band=low
"""
SAMPLE = "m4_sample"
_SAMPLED_EXAMPLES = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("directory", metavar="DIR", help=f"prepared directory, or {SAMPLE}")
    parser.add_argument(
        "--temperature",
        type=float,
        default=mixture.TEMPERATURE,
        metavar="T",
        help="1 follows the sizes, a large T makes all equal (default: %(default)g)",
    )
    parser.add_argument("--maximum", type=int, metavar="N", help="larger languages count as N rows")
    parser.add_argument(
        "--minimum-share", type=float, default=0.0, metavar="P", help="the least share, from 0 to 1"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--languages", metavar="CODES", help="only these, separated by commas")
    chosen.add_argument("--band", choices=mixture.BANDS, help="only languages of this band")
    parser.add_argument("--batch-size", type=int, metavar="N", help="examples of a global batch")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--steps", type=int, metavar="N", help="budget in steps of --batch-size")
    budget.add_argument("--examples", type=int, metavar="N", help="budget in examples")
    budget.add_argument("--tokens", type=int, metavar="N", help="budget in tokens of both sides")
    parser.add_argument("--json", action="store_true", help="print one object instead")


def command(options: argparse.Namespace, command_line: str) -> int:
    """Prints the table."""
    del command_line
    faults = list(_option_faults(options))
    corpus = _attempt(faults, lambda: _corpus(options.directory))
    chosen = corpus and _attempt(faults, lambda: _chosen(corpus, options))
    mixed = None if faults else _attempt(faults, lambda: _mixture(corpus, chosen, options))
    if faults or mixed is None:
        raise InputError(faults)
    tokens = _tokens_per_example(mixed, options.directory) if options.tokens else None
    found = describe(mixed, options, tokens)
    print(json.dumps(found, ensure_ascii=False, indent=1) if options.json else _table(found))
    return 0


def describe(
    mixed: mixture.Mixture, options: argparse.Namespace, tokens_per_example: float | None
) -> dict[str, Any]:
    """All that the table shows; `epochs` and `examples_per_batch` are means."""
    counts = mixed.corpus.counts("train")
    rows = {code: counts[code] for code in mixed.rates}
    budget = _budget(options, sum(rows.values()), tokens_per_example)
    known = {one.code: one for one in (*languages.LANGUAGES, *languages.OTHER_LANGUAGES)}
    listed = [
        {
            "code": code,
            "name": known[code].name if code in known else code,
            "band": known[code].band if code in known else None,
            "rows": rows[code],
            "share": mixed.rates[code],
            "examples_per_batch": options.batch_size and mixed.rates[code] * options.batch_size,
            "epochs": mixed.rates[code] * budget / rows[code],
        }
        for code in sorted(rows, key=lambda code: (-rows[code], code))
    ]
    return {
        "name": mixed.name,
        "temperature": options.temperature,
        "maximum": options.maximum,
        "minimum_share": options.minimum_share,
        "batch_size": options.batch_size,
        "rows": sum(rows.values()),
        "budget_examples": budget,
        "tokens_per_example": tokens_per_example,
        "left_out": list(mixed.left_out),
        "languages": listed,
    }


def _budget(options: argparse.Namespace, rows: int, tokens_per_example: float | None) -> float:
    """Examples that are seen."""
    if options.steps is not None:
        return options.steps * options.batch_size
    if tokens_per_example is not None:
        return options.tokens / tokens_per_example
    return options.examples if options.examples is not None else rows


def _attempt(faults: list[str], make: Callable[[], Any]) -> Any:
    try:
        return make()
    except InputError as error:
        faults.extend(error.faults)
    except ValueError as error:
        faults.append(str(error))
    return None


def _corpus(directory: str) -> Corpus:
    if directory == SAMPLE:
        return mixture.find(SAMPLE).corpus
    return open_corpus(directory)


def _option_faults(options: argparse.Namespace) -> Iterable[str]:
    for name in ("maximum", "batch-size", "steps", "examples", "tokens"):
        value = getattr(options, name.replace("-", "_"))
        if value is not None and value < 1:
            yield f"--{name}={value} must be at least 1"
    if not options.temperature > 0:
        yield f"--temperature={options.temperature:g} must be above 0"
    if not 0 <= options.minimum_share <= 1:
        yield f"--minimum-share={options.minimum_share:g} must be from 0 to 1"
    if options.steps is not None and options.batch_size is None:
        yield "--steps needs --batch-size"


def _chosen(corpus: Corpus, options: argparse.Namespace) -> list[str]:
    """The codes of the languages that are asked for."""
    if options.languages is not None:
        words = [word.strip() for word in options.languages.split(",")]
        codes, faults = codes_in(corpus.pairs, words, options.directory)
        if faults:
            raise InputError(faults)
        return codes
    return mixture.languages_of(corpus, f"{corpus.name}_{options.band or mixture.ALL}_en")


def _mixture(corpus: Corpus, chosen: list[str], options: argparse.Namespace) -> mixture.Mixture:
    by_code = options.languages is not None
    mixed = mixture.mixture_of(
        corpus,
        chosen,
        name=mixture.list_name(corpus, chosen if by_code else [options.band or mixture.ALL]),
        temperature=options.temperature,
        maximum=options.maximum,
        minimum_share=options.minimum_share,
    )
    if mixed.left_out and by_code:
        raise InputError([f"--languages: no training text in {', '.join(mixed.left_out)}"])
    return mixed


def _tokens_per_example(mixed: mixture.Mixture, directory: str) -> float:
    """The mean number of tokens of both sides, with ends of sentence."""
    from gshard_m4.batches import Examples
    from gshard_m4.vocabulary import Vocabulary

    models = (mixed.corpus.source_vocabulary, mixed.corpus.target_vocabulary)
    if not all(model.is_file() for model in models):
        raise InputError(
            [f"--tokens: {directory} has no vocabulary; run gshard-m4 vocabulary {directory}"]
        )
    sides = zip(*Examples(mixed, seed=0)[0:_SAMPLED_EXAMPLES], strict=True)
    tokens = sum(
        sum(len(ids) + 1 for ids in Vocabulary(model).encode_batch(texts))
        for model, texts in zip(models, sides, strict=True)
    )
    return tokens / _SAMPLED_EXAMPLES


def _table(found: dict[str, Any]) -> str:
    listed = found["languages"]
    header = ["code", "name", "band", "rows", "share", "a batch", "epochs"]
    rows = [header] + [
        [
            one["code"],
            one["name"],
            one["band"] or "",
            f"{one['rows']:,}",
            f"{one['share']:.3%}",
            "" if one["examples_per_batch"] is None else f"{one['examples_per_batch']:.2f}",
            f"{one['epochs']:.4g}",
        ]
        for one in listed
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if at < 3 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *_summary(found)])


def _summary(found: dict[str, Any]) -> list[str]:
    limits = [f"T = {found['temperature']:g}"]
    if found["maximum"] is not None:
        limits.append(f"at most {found['maximum']:,} rows each")
    if found["minimum_share"]:
        limits.append(f"at least {found['minimum_share']:.3%} each")
    lines = [
        f"{found['name']}: {len(found['languages'])} languages, {found['rows']:,} rows,"
        f" {', '.join(limits)}",
        f"epochs are for {found['budget_examples']:,.0f} examples",
    ]
    if found["tokens_per_example"] is not None:
        lines[-1] += f" of {found['tokens_per_example']:.1f} tokens"
    if found["left_out"]:
        lines.append(f"left out, without training rows: {', '.join(found['left_out'])}")
    return lines
