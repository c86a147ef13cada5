"""What the mixture-of-experts layer costs: time, memory, compiling, and what a TPU would take.

    tools/with_python bench_moe.py [--points A,B,C] [--rounds N] [--peers NAMES] [--tpu NAMES]

Prints a table; the last line is one JSON object. The points have G groups of S tokens, E experts,
model width M and hidden width H, and the paper's 2S/E slots per expert and group:
  A  G 2, S 1024, E 16,  M 512, H 2048
  B  G 8, S 512,  E 64,  M 256, H 1024
  C  G 4, S 1024, E 128, M 256, H 512
Times are ratios to a dense block with as much work, medians of rounds that run every program once.
The layer has its mask, coin, losses and statistics; `bare` has none of them. Other packages'
layers are measured where they are installed, on the CPU, over their own framework's dense block:
MaxText among the rows, since it is JAX too, those of PyTorch behind them.
For TPUs that are not there the layer is compiled and its time estimated, forward and backward, over
the experts with four all-to-alls and nothing else (needs the TPU compiler, jax[tpu]).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import sys
from typing import Any

import environment

POINTS = ("A", "B", "C")
TPUS = ("v3-128", "v3-2048")
ALWAYS = ("dense", "experts only", "layer")
PEERS = ("maxtext", "fairscale", "deepspeed", "deepspeed-batch", "transformers")
_DTYPES = {"cpu": ("float32",), "cuda": ("float32", "bfloat16")}
_MIB = "MiB"


def main(arguments: list[str] | None = None) -> None:
    """Measures what was asked for, prints it, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_moe") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    _start_jax(options.backend)
    _print_load("start")
    peers = {} if options.backend != "cpu" else _usable_peers(options.peers)
    found: dict[str, Any] = {"points": {}, "tpu": {}}
    for point in options.points:
        for dtype in _DTYPES[options.backend]:
            key = point if dtype == "float32" else f"{point} {dtype}"
            rows = options.rows and [*ALWAYS, "maxtext", *options.rows]
            found["points"][key] = _measure_point(
                key, point, dtype, options.rounds, rows, maxtext="maxtext" in peers
            )
        _add_peers(found["points"][point], point, peers, options.rounds)
    for name in options.tpu:
        found["tpu"][name] = _measure_tpu(name)
    _print_load("end")
    text = json.dumps(_rounded(found))
    if options.json:
        options.json.write_text(text + "\n")
    print(text)


def _start_jax(backend: str) -> None:
    import jax

    # The CPU as well, or the TPU compiler's devices could not be described.
    jax.config.update("jax_platforms", backend if backend == "cpu" else f"{backend},cpu")


def _print_load(when: str) -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load average at the {when}: {load} ({os.cpu_count()} CPUs)", flush=True)


def _measure_point(
    title: str, point: str, dtype: str, rounds: int, rows: list[str], *, maxtext: bool
) -> dict[str, Any]:
    import bench_moe_layers
    import bench_moe_rounds

    sizes = bench_moe_layers.POINTS[point]
    print(f"\n{title}: {' '.join(f'{name}={n}' for name, n in sizes._asdict().items())}")
    subjects = bench_moe_layers.subjects(sizes, dtype)
    if maxtext:
        import bench_moe_maxtext

        subjects["maxtext"] = bench_moe_maxtext.subject(sizes)
    subjects = {name: each for name, each in subjects.items() if name in (rows or subjects)}
    programs = {name: bench_moe_layers.compiled(each) for name, each in subjects.items()}
    table: dict[str, dict[str, float]] = {name: {} for name in programs}
    for what in ("forward", "forward_backward"):
        seconds = bench_moe_rounds.interleaved(
            {name: both[what].run for name, both in programs.items()}, rounds
        )
        for name, row in table.items():
            of_dense = bench_moe_rounds.median_ratio(seconds[name], seconds["dense"])
            of_experts = bench_moe_rounds.median_ratio(seconds[name], seconds["experts only"])
            program = programs[name][what]
            row[what], row[f"{what}_of_experts_only"] = of_dense, of_experts
            row[f"{what}_seconds"] = min(seconds[name])
            row[f"{what}_compile_seconds"] = program.compile_seconds
            row[f"{what}_temp_mb"] = program.temp_mb
    _print_rows(table)
    return _point_json(table)


def _print_rows(rows: dict[str, dict[str, float]]) -> None:
    print(f"{'':22}{'forward':>26}{'forward + backward':>42}")
    one = f"{'/dense':>9}{'/experts':>9}{'ms':>9}"
    print(f"{'':22}{one}{'':6}{one}{'temp ' + _MIB:>10}{'compile s':>11}")
    for name, row in rows.items():
        cells = [
            f"{row[what]:9.2f}{row[f'{what}_of_experts_only']:9.2f}"
            f"{1e3 * row[f'{what}_seconds']:9.2f}"
            for what in ("forward", "forward_backward")
        ]
        temp, seconds = (row[f"forward_backward_{k}"] for k in ("temp_mb", "compile_seconds"))
        print(f"{name:22}{cells[0]}{'':6}{cells[1]}{temp:10.1f}{seconds:11.1f}", flush=True)


def _point_json(rows: dict[str, dict[str, float]]) -> dict[str, Any]:
    layer, found = rows["layer"], {}
    for what in ("forward", "forward_backward"):
        found[what] = layer[what]
        found[f"experts_only_{what}"] = rows["experts only"][what]
        found[f"{what}_of_experts_only"] = layer[f"{what}_of_experts_only"]
        if "bare" in rows:
            found[f"bare_{what}"] = rows["bare"][what]
    found["temp_mb"] = layer["forward_backward_temp_mb"]
    found["compile_seconds"] = layer["forward_backward_compile_seconds"]
    peers = {name: rows[name] for name in ("maxtext",) if name in rows}
    return {**found, "peers": peers, "rows": rows}


def _usable_peers(names: list[str]) -> dict[str, Any]:
    """The peers asked for that are here and compute what ours computes; says so of each."""
    import bench_moe_maxtext
    import bench_moe_peers

    usable = {}
    for name in names:
        if name == "maxtext":
            peer, reason, note = None, bench_moe_maxtext.status(), bench_moe_maxtext.NOTE
        else:
            peer = bench_moe_peers.PEERS[name]
            reason, note = bench_moe_peers.status(peer), peer.note
        print(f"{name}: {reason or 'agrees with ours at tiny sizes; ' + note}", flush=True)
        usable |= {} if reason else {name: peer}
    return usable


def _add_peers(found: dict[str, Any], point: str, peers: dict[str, Any], rounds: int) -> None:
    import bench_moe_layers
    import bench_moe_peers

    here = {name: peer for name, peer in peers.items() if peer and point not in peer.left_out}
    if not here:
        return
    sizes = bench_moe_layers.POINTS[point]
    found["peers"] |= bench_moe_peers.measure(here, sizes, rounds, os.cpu_count() or 1)
    for name in here:
        ratios = found["peers"][name]
        print(
            f"{name:22}{ratios['forward']:9.2f}{'':24}{ratios['forward_backward']:9.2f}", flush=True
        )


def _measure_tpu(name: str) -> dict[str, Any]:
    if importlib.util.find_spec("libtpu") is None:
        print(f"\n{name}: the TPU compiler is not installed (pip install 'jax[tpu]')")
        return {}
    import bench_moe_tpu

    print(f"\n{name}: one layer, forward + backward, one expert and 2048 tokens per core")
    print(
        f"{'':14}{'compiler ms':>12}{'/experts':>9}{'inspector ms':>14}{'/experts':>9}"
        f"{'temp ' + _MIB:>10}  collectives, bytes on a core"
    )
    found = {}
    for kind, row in bench_moe_tpu.measure(name):
        found[kind] = row
        moved = "; ".join(f"{k} {_counted(sizes)}" for k, sizes in row["collectives"].items())
        print(
            f"{kind:14}{1e3 * row['optimal_seconds']:12.2f}{row['ratio']:9.3f}"
            f"{1e3 * row['inspector_seconds']:14.2f}{row['inspector_ratio']:9.3f}"
            f"{row['temp_mb']:10.1f}  {moved}",
            flush=True,
        )
    return {**found["layer"], "rows": found}


def _rounded(found: Any) -> Any:
    """Four digits, which is more than the measurements are good for."""
    if isinstance(found, dict):
        return {key: _rounded(value) for key, value in found.items()}
    return float(f"{found:.4g}") if isinstance(found, float) else found


def _counted(sizes: list[int]) -> str:
    return ", ".join(f"{sizes.count(n)} x {n:,}" for n in sorted(set(sizes), reverse=True))


def _names(allowed: tuple[str, ...]) -> Any:
    def parse(text: str) -> list[str]:
        names = [] if text == "none" else text.split(",")
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(
                f"there is no {', '.join(unknown)}; give some of {', '.join(allowed)}, or none"
            )
        return names

    return parse


def _words(text: str) -> list[str]:
    return text.split(",")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_moe.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    points, tpus = _names((*POINTS, "tiny")), _names(TPUS)
    add("--points", type=points, default=list(POINTS), help="by default A,B,C")
    add("--rows", type=_words, help="only these beside dense, experts only and layer, as bare")
    add("--rounds", type=int, default=9, help="by default 9")
    add("--peers", type=_names(PEERS), default=list(PEERS), help="by default all; none for none")
    add("--tpu", type=tpus, default=list(TPUS), help="by default all; none for none")
    add("--backend", choices=tuple(_DTYPES), default="cpu", help="where JAX runs; by default cpu")
    add("--json", type=pathlib.Path, metavar="FILE", help="writes the last line here as well")
    return parser


if __name__ == "__main__":
    main()
