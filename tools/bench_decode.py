"""What decoding costs: kept keys and values against running the whole decoder for each token.

    tools/with_python bench_decode.py [--rounds N] [--batch-size N] [--length N] [--beams K]

The model is that of gshard_m4/configs/quickstart.gin, on one CPU device, with parameters that never
end a sentence, so that every row does all positions. `whole decoder` is beam search that keeps only
tokens; `reordered` keeps keys and values and moves them when hypotheses change places; `flat` is
the paper's flat beam, which moves nothing; `greedy` has one hypothesis; `one sentence` is
`reordered` on a batch that is padding but for one row, as a last batch may be. That the first three
find the same is checked before. Rows take turns in each round: a ratio is the median of the rounds'
own. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time

import environment

BASELINE = "whole decoder"


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints the table, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_m4") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    _print_load("start")
    rows = measure(options)
    print(f"{'':16}{'ms':>10}{'sentences/s':>14}{'times as fast as ' + BASELINE:>34}")
    for name, row in rows.items():
        print(
            f"{name:16}{1e3 * row['seconds']:10.1f}{row['sentences_per_second']:14.1f}"
            f"{row['times_as_fast']:34.2f}"
        )
    _print_load("end")
    sizes = {name: getattr(options, name) for name in ("batch_size", "length", "beams", "rounds")}
    print(json.dumps({**sizes, "rows": rows}))


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The rows of the table."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    import bench_decode_programs

    programs = bench_decode_programs.programs(
        batch_size=options.batch_size, length=options.length, beams=options.beams
    )
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(options.rounds):
        for name, run in programs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: _row(seconds, name, options.batch_size) for name in programs}


def _row(seconds: dict[str, list[float]], name: str, batch_size: int) -> dict[str, float]:
    own = statistics.median(seconds[name])
    ratios = [base / one for base, one in zip(seconds[BASELINE], seconds[name], strict=True)]
    sentences = 1 if name == "one sentence" else batch_size
    return {
        "seconds": round(own, 6),
        "sentences_per_second": round(sentences / own, 2),
        "times_as_fast": round(statistics.median(ratios), 3),
    }


def _print_load(when: str) -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load average at the {when}: {load} ({os.cpu_count()} CPUs)", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_decode.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=9, help="of all rows (default 9)")
    parser.add_argument(
        "--batch-size", type=int, default=256, help="sentences, a multiple of 8 (default 256)"
    )
    parser.add_argument(
        "--length", type=int, default=8, help="positions decoded (default 8, the quickstart's)"
    )
    parser.add_argument("--beams", type=int, default=4, help="hypotheses of a sentence (default 4)")
    return parser


if __name__ == "__main__":
    main()
