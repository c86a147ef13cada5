"""One mixture-of-experts block, ours and MaxText's, compiled for the same TPUs that are not there.

    tools/with_python bench_moe_tpu_maxtext.py [--topologies A,B] [--rows A,B]
        [--json FILE [--resume]]

Prints a table for each topology; the last line is one JSON object. FILE has it after each row, so
that `--resume` goes on with a run that was stopped. The block is the paper's: M
1024, 2048 tokens, one group and one expert per core, two experts per token, 2S/E slots, parameters
in float32 and activations in bfloat16; forward and backward, each with its own shardings on a mesh
with an expert axis. Both have gated experts of 2/3 of the paper's width 8192, so that they compute
the same; eight virtual CPU devices show that they do before anything is compared. `ours-full` has
what a trainer needs beside that: mask, coin, losses, statistics.

Nothing runs: milliseconds are estimates, floors both. The inspector's have the time on the
interconnect, the compiler's (its `optimal_seconds`) have not; both charge a gather with its bytes,
and only the compiler's charge scatters, of which MaxText has two, by the row. Custom kernels
(megablox, ragged_dot) are in neither: their rows tell memory and collectives, and no time.

MaxText has to be installed beside ours, with JAX of the same TPU compiler, and needs Python 3.12:

    uv venv --python 3.12 peers
    uv pip install --python peers/bin/python 'jax[tpu]==0.11.2' aqtp drjax grain huggingface_hub \
        jinja2 omegaconf orbax-checkpoint pathwaysutils pillow pydantic qwix tokamax transformers \
        -e packages/gshard-annotate -e packages/gshard-moe
    uv pip install --python peers/bin/python --no-deps maxtext==0.2.5
    PATH=$PWD/peers/bin:$PATH tools/with_python bench_moe_tpu_maxtext.py

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

import bench_moe_tpu
from bench_moe_tpu_blocks import ROWS, TOLERANCE, VIRTUAL, difference, lowered
from gshard_annotate import topology_devices

TOPOLOGIES = ("v3:4x4", "v3:8x8", "v5p:4x4x8")


def main(arguments: list[str] | None = None) -> None:
    """Compares what was asked for, prints it, and closes with the JSON."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name, what in (("maxtext", "MaxText"), ("libtpu", "the TPU compiler")):
        if importlib.util.find_spec(name) is None:
            parser.error(f"{what} is not installed in this Python; see --help for the commands")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", VIRTUAL)
    warnings.filterwarnings("ignore", "`with mesh:` context manager")  # MaxText's own way
    try:
        machines = {name: topology_devices(name) for name in options.topologies}
    except ValueError as error:
        parser.error(str(error))
    kept = _kept(parser, options)
    found: dict[str, Any] = {**kept, "difference": difference()}
    print(
        f"{VIRTUAL} virtual CPU devices, float32: gradients differ by {found['difference']:.1g}"
        " of the largest of a tensor",
        flush=True,
    )
    if found["difference"] > TOLERANCE:
        parser.exit(1, f"they do not compute the same (allowed: {TOLERANCE:g})\n")
    for name, devices in machines.items():
        rows = found.setdefault(name, {})
        for row, figures in _compare(name, devices, options.rows, rows):
            rows[row] = figures
            if options.json:
                _write(options.json, found)
    print(json.dumps(found))


def _kept(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The rows of a run that was stopped."""
    if not options.resume:
        return {}
    if not options.json:
        parser.error("--resume takes rows from --json FILE; name it")
    try:
        kept = json.loads(options.json.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        parser.error(f"--json {options.json} is not JSON ({error}); leave --resume out")
    print(f"rows that are in {options.json} are taken as they are, whatever made them")
    return kept


def _write(file: pathlib.Path, found: dict[str, Any]) -> None:
    new = file.with_name(file.name + ".new")
    new.write_text(json.dumps(found) + "\n")
    new.replace(file)


def _compare(
    topology: str, devices: list[Any], rows: list[str], kept: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Figures of each row, printed as they come; of one that does not compile what it said."""
    print(f"\n{topology}: {len(devices)} {devices[0].device_kind}, as many experts and groups")
    print(
        f"{'':25}{'GFLOP':>8}{'inspector ms':>14}{'/ours':>7}{'compiler ms':>13}{'/ours':>7}"
        f"{'temp MiB':>10}{'/ours':>7}{'CPU s':>7}  collectives, bytes on a core"
    )
    ours: dict[str, Any] = {}
    for name in rows:
        row = kept.get(name) or _figures(name, devices)
        if "refused" in row:
            print(f"{name:25} does not compile: {row['refused']}", flush=True)
        else:
            ours = row if name == "ours" else ours
            print(_line(name, row, ours), flush=True)
        yield name, row


def _figures(name: str, devices: list[Any]) -> dict[str, Any]:
    try:
        return bench_moe_tpu.figures(*lowered(name, devices))
    except Exception as error:  # whatever JAX, MaxText and the TPU compiler raise
        return {"refused": _reason(error)}


def _line(name: str, row: dict[str, Any], ours: dict[str, Any]) -> str:
    cells = [f"{name:25}{row['gflop']:8.0f}"]
    scales = {"inspector_seconds": (1e3, 14), "optimal_seconds": (1e3, 13), "temp_mb": (1, 10)}
    for key, (scale, width) in scales.items():
        if row["opaque"] and key != "temp_mb":
            cells.append(f"{'-':>{width}}{'-':>7}")
            continue
        ratio = f"{row[key] / ours[key]:.2f}" if ours else ""
        cells.append(f"{scale * row[key]:{width}.2f}{ratio:>7}")
    moved = "; ".join(f"{kind} {_counted(sizes)}" for kind, sizes in row["collectives"].items())
    kernels = f" [{'; '.join(row['opaque'])}]" if row["opaque"] else ""
    return f"{''.join(cells)}{row['compile_cpu_seconds']:7.1f}  {moved}{kernels}"


def _counted(sizes: list[int]) -> str:
    """The larger exchanges; those of a few scalars say nothing."""
    large = [size for size in sizes if size >= 2**16]
    each = [f"{large.count(size)} x {size:,}" for size in sorted(set(large), reverse=True)]
    return ", ".join(each) or "small"


def _reason(error: Exception) -> str:
    """What is told of it: of the TPU compiler's long messages the part that says why."""
    words = " ".join(str(error).split())
    told = re.search(r"E\d{4}: \w+(: [\w ]+)?|Ran out of memory[^,;]{0,80}", words)
    return f"{type(error).__name__}: {told[0] if told else words[:160]}"


def _names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(
                f"there is no {', '.join(unknown)}; give some of {', '.join(allowed)}"
            )
        return names

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_moe_tpu_maxtext.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--topologies",
        type=lambda text: text.split(","),
        default=list(TOPOLOGIES),
        metavar="A,B",
        help=f"by default {','.join(TOPOLOGIES)}; also v3:32x32, v6e:8x16 and others",
    )
    add("--rows", type=_names(ROWS), default=list(ROWS), metavar="A,B", help="by default all")
    add("--json", type=pathlib.Path, metavar="FILE", help="writes the last line here as well")
    add("--resume", action="store_true", help="compiles what FILE lacks")
    return parser


if __name__ == "__main__":
    main()
