"""What scoring costs: `gshard-m4 evaluate` on many languages beside sacrebleu's own command.

    tools/with_python bench_evaluate.py [--english FILE] [--languages N] [--rows N] [--processes N]

Hypotheses are FILE's lines (without it, made lines of 25 words of the sample's English) with words
dropped and exchanged, other ones for each language. `evaluate` is the whole command with its
defaults: reading, BLEU, chrF++, language identification, page, pictures and files. `sacrebleu` is
its command with both metrics for a few of the languages, scaled to all of them; their scores are
compared to the last digit. Ratios are of seconds.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import environment

_COMPARED = 4
_WORDS = 25


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints the table, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_m4") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    print(f"load average before {os.getloadavg()[0]:.1f}, processes {options.processes}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        codes = _write(folder, options)
        seconds = _evaluate(folder, options)
        found = {"evaluate": seconds, "sacrebleu": _sacrebleu(folder, codes)}
    found["ratio"] = found["sacrebleu"] / found["evaluate"]
    print(f"{'':12}{'seconds':>9}   {len(codes)} languages of at most {options.rows} phrases")
    print(f"{'evaluate':12}{found['evaluate']:9.1f}   all of it, {options.processes} processes")
    print(f"{'sacrebleu':12}{found['sacrebleu']:9.1f}   one language after the other, scaled")
    print(json.dumps(found | {"languages": len(codes), "rows": options.rows}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_evaluate.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--english", type=pathlib.Path, metavar="FILE", help="sentences, one a line")
    add("--languages", type=int, default=100, metavar="N", help="by default %(default)s")
    add("--rows", type=int, default=2000, metavar="N", help="of a language; by default %(default)s")
    add("--processes", type=int, default=2, metavar="N", help="by default %(default)s")
    return parser


def _write(folder: pathlib.Path, options: argparse.Namespace) -> list[str]:
    """Writes en.txt and hyps/<code>.txt; the codes."""
    from gshard_m4 import languages

    english = _english(options)
    words = " ".join(english).split()
    (folder / "en.txt").write_text("\n".join(english) + "\n", encoding="utf-8")
    (folder / "hyps").mkdir()
    codes = [language.code for language in languages.LANGUAGES][: options.languages]
    for rank, code in enumerate(codes):
        draw, share = random.Random(code), 0.2 + 0.6 * rank / len(codes)
        lines = [_noisy(line, words, share, draw) for line in english]
        (folder / "hyps" / f"{code}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return codes


def _english(options: argparse.Namespace) -> list[str]:
    if options.english is not None:
        lines = options.english.read_text(encoding="utf-8").split("\n")
        return [line for line in lines if line.strip()][: options.rows]
    from gshard_m4.sample.corpus import corpus

    pairs = corpus().pairs.values()
    words = [word for each in pairs for _, text in each["train"] for word in text.split()]
    draw = random.Random(0)
    return [" ".join(draw.choices(words, k=_WORDS)) for _ in range(options.rows)]


def _noisy(line: str, words: list[str], share: float, draw: random.Random) -> str:
    """The line with about `share` of its words exchanged, and a third as many dropped."""
    said = []
    for word in line.split():
        chance = draw.random()
        if chance > share / 3:
            said.append(word if chance > share else draw.choice(words))
    return " ".join(said)


def _evaluate(folder: pathlib.Path, options: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "gshard_m4", "evaluate", f"--hypotheses={folder / 'hyps'}"]
    command += [f"--references={folder / 'en.txt'}", f"--processes={options.processes}"]
    start = time.perf_counter()
    command += [f"--output={folder / 'report'}", "--as-is"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _sacrebleu(folder: pathlib.Path, codes: list[str]) -> float:
    """Seconds for all languages, from a few; stops where a score is not the same."""
    scores = json.loads((folder / "report" / "scores.json").read_text(encoding="utf-8"))
    ours = {one["code"]: one for one in scores["splits"]["test"]["languages"]}
    chosen = codes[:: max(1, len(codes) // _COMPARED)][:_COMPARED]
    start = time.perf_counter()
    for code in chosen:
        command = [sys.executable, "-m", "sacrebleu", str(folder / "en.txt"), "-w", "17"]
        command += ["-i", str(folder / "hyps" / f"{code}.txt"), "-m", "bleu", "chrf"]
        command += ["--chrf-word-order", "2", "--force"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        theirs = [found["score"] for found in json.loads(done.stdout)]
        if theirs != [ours[code]["bleu"], ours[code]["chrfpp"]]:
            raise SystemExit(f"{code}: sacrebleu has {theirs}, we have {ours[code]}")
    return (time.perf_counter() - start) / len(chosen) * len(codes)


if __name__ == "__main__":
    main()
