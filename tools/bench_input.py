"""What the training feed delivers: time to the first batch, examples and tokens a second, memory.

    tools/with_python bench_input.py DIR [--from-tsv FOLDER] [--seconds N] [--seqio]

DIR is a prepared directory with its vocabulary. With --from-tsv it is made first, from files
<code>.train.tsv, <code>.valid.tsv and <code>.test.tsv with the columns source, English and origin,
and its vocabulary is learnt; what is there already is used.

Each row of the table is a process of its own, measured after its imports: `unpacked` has one
example a row of 64 + 64 tokens, `packed` rows of 256 tokens and as many English ones as go with
them in this corpus. Memory is the peak. With --seqio the same text, vocabularies and rates go
through plain seqio, one task a language, without and with its packing, and ratios are printed.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import environment

UNPACKED_LENGTHS = {"inputs": 64, "targets": 64}
PACKED_INPUTS = 256
_TSV_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
_SEQIO = pathlib.Path(__file__).with_name("bench_input_seqio.py")


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints the table, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_m4") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    if options.child:
        print(json.dumps(measure(options)))
        return
    if options.from_tsv:
        _prepare(options)
    _print_load("start")
    print(
        f"{'':16}{'first s':>9}{'examples/s':>12}{'tokens/s':>11}{'GB':>7}{'threads':>9}"
        f"{'fill':>16}{'dropped':>9}{'cut':>8}"
    )
    found = {"unpacked": _row("unpacked", __file__, options, UNPACKED_LENGTHS, 256)}
    lengths = {"inputs": PACKED_INPUTS, "targets": found["unpacked"].pop("balanced_targets")}
    found["packed"] = _row("packed", __file__, options, lengths, 64)
    if options.seqio:
        found["seqio"] = _row("seqio", _SEQIO, options, UNPACKED_LENGTHS, 256)
        found["seqio packed"] = _row("seqio packed", _SEQIO, options, lengths, 64)
        found["over seqio"] = _ratios(found)
    _print_load("end")
    print(json.dumps({"lengths": lengths, **found}))


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Our feed, packed or not, for some seconds."""
    from gshard_m4.feed import Packing, training_feed

    start = time.perf_counter()
    feed = training_feed(
        mixture_or_task_name=options.mixture,
        task_feature_lengths=options.lengths,
        batch_size=options.batch_size,
        seed=0,
        data_dir=options.directory,
        packing=Packing() if options.child == "packed" else None,
    )
    next(feed)
    first_seconds = time.perf_counter() - start
    before, start = feed.packing_report(), time.perf_counter()
    while time.perf_counter() - start < options.seconds:
        next(feed)
    seconds, after = time.perf_counter() - start, feed.packing_report()
    input_tokens = after.input_tokens - before.input_tokens
    target_tokens = after.target_tokens - before.target_tokens
    found = {
        "first_seconds": first_seconds,
        "examples_per_second": (after.examples - before.examples) / seconds,
        "tokens_per_second": (input_tokens + target_tokens) / seconds,
        "input_fill": after.input_fill,
        "target_fill": after.target_fill,
        "dropped": after.overflow,
        "cut": after.cut / after.examples,
        **process_size(),
    }
    feed.close()
    if options.child == "unpacked":
        found["balanced_targets"] = _balanced_targets(options)
    return found


def _balanced_targets(options: argparse.Namespace) -> int:
    """How long rows of English are that go with PACKED_INPUTS, by the first 4,096 examples."""
    from gshard_m4.feed import training_feed

    feed = training_feed(
        mixture_or_task_name=options.mixture,
        task_feature_lengths={"inputs": PACKED_INPUTS, "targets": PACKED_INPUTS},
        batch_size=4096,
        seed=0,
        data_dir=options.directory,
    )
    next(feed)
    counts = feed.packing_report()
    feed.close()
    return round(PACKED_INPUTS * counts.target_tokens / counts.input_tokens)


def process_size() -> dict[str, float]:
    """This process's peak memory and its threads, as Linux tells them."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {
        "peak_gb": int(fields["VmHWM"].split()[0]) * 1024 / 1e9,
        "threads": int(fields["Threads"]),
    }


def _row(
    name: str,
    script: str | pathlib.Path,
    options: argparse.Namespace,
    lengths: dict[str, int],
    batch_size: int,
) -> dict[str, Any]:
    """One process's measurement, printed."""
    command = [sys.executable, str(script), str(options.directory), f"--child={name.split()[-1]}",
               f"--mixture={options.mixture}", f"--seconds={options.seconds}",
               f"--lengths={json.dumps(lengths)}", f"--batch-size={batch_size}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench_input: {name} failed\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{name:16}{found['first_seconds']:9.2f}{found['examples_per_second']:12,.0f}"
        f"{found['tokens_per_second']:11,.0f}{found['peak_gb']:7.2f}{found['threads']:9d}"
        f"{found['input_fill']:9.1%}{found['target_fill']:7.1%}"
        + "".join(f"{found[k]:8.2%} " if k in found else "" for k in ("dropped", "cut")),
        flush=True,
    )
    return found


def _ratios(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Each of ours over seqio's, of what is the same for both."""
    ratios = {}
    for ours, theirs in (("unpacked", "seqio"), ("packed", "seqio packed")):
        ratios[ours] = {
            name: found[ours][name] / found[theirs][name]
            for name in ("first_seconds", "examples_per_second", "peak_gb", "threads")
        }
        row = ", ".join(f"{name} {ratio:.3g}" for name, ratio in ratios[ours].items())
        print(f"{ours} over {theirs}: {row}")
    return ratios


def _prepare(options: argparse.Namespace) -> None:
    from gshard_m4 import cli
    from gshard_m4.prepared import MANIFEST, write_prepared

    if not (options.directory / MANIFEST).exists():
        texts: dict[str, dict[str, Iterator[list[str]]]] = {}
        for path in sorted(options.from_tsv.glob("*.tsv")):
            code, split, *_ = path.name.split(".")
            if split in _TSV_SPLITS:
                texts.setdefault(code, {})[_TSV_SPLITS[split]] = _rows(path)
        print(f"writing {len(texts)} languages to {options.directory}", flush=True)
        write_prepared(options.directory, texts, name="bench_input", command=str(sys.argv))
    if not (options.directory / "vocabulary").exists():
        sizes = (f"--source-size={options.source_size}", f"--target-size={options.target_size}")
        if cli.run(["vocabulary", str(options.directory), *sizes]):
            sys.exit(2)


def _rows(path: pathlib.Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n").split("\t")


def _print_load(when: str) -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load average at the {when}: {load} ({os.cpu_count()} CPUs)", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_input.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("directory", type=pathlib.Path, metavar="DIR", help="prepared directory")
    add("--from-tsv", type=pathlib.Path, metavar="FOLDER", help="makes DIR of the files there")
    add("--source-size", type=int, default=32000, help="of a vocabulary; by default 32000")
    add("--target-size", type=int, default=16000, help="of a vocabulary; by default 16000")
    add("--mixture", default="m4_all_en", help="by default m4_all_en")
    add("--seconds", type=float, default=15.0, help="of a measurement; by default 15")
    add("--seqio", action="store_true", help="plain seqio as well; a few minutes")
    add("--child", choices=("unpacked", "packed", "seqio"), help=argparse.SUPPRESS)
    add("--lengths", type=json.loads, help=argparse.SUPPRESS)
    add("--batch-size", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
