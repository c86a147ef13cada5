"""What gshard-annotate costs: annotations while tracing, checks of a tree, import, the inspector.

    tools/with_python bench_annotate.py [PART ...]

Prints a table; the last line is one JSON object. The parts:
  tracing    seconds to trace a program of ten operations per annotation, over raw JAX constraints
  program    whether the compiled program differs from the one with raw constraints
  tree       seconds to check a tree of 5,000 parameters
  import     seconds that the package takes to import beyond jax
  inspector  seconds that `inspect` takes beyond compiling, on the training step of the paper's
             36-layer model with 2,048 experts for 2,048 TPU v3 cores (needs the TPU compiler)
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import environment

PARTS = ("tracing", "program", "tree", "import", "inspector")
LIMITS = {
    "tracing": 1.05,
    "program": 0,
    "tree": 0.2,
    "import": 0.1,
    "inspector": 10.0,
}
_WHAT = {
    "tracing": "tracing time over raw constraints",
    "program": "instructions that differ from raw constraints",
    "tree": "checks of 5,000 parameters, seconds",
    "import": "import beyond jax, seconds",
    "inspector": "inspector beyond compiling, seconds",
}


def main() -> None:
    """Measures the parts asked for, each against its limit."""
    parser = argparse.ArgumentParser(
        prog="tools/bench_annotate.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="by default all")
    asked = parser.parse_args().parts or list(PARTS)
    if unknown := [part for part in asked if part not in PARTS]:
        parser.error(f"no part is called {', '.join(unknown)}; give some of {', '.join(PARTS)}")
    if importlib.util.find_spec("gshard_train") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *asked])
    _start_jax()
    results: dict[str, Any] = {}
    print(f"{'':48}{'measured':>10}{'at most':>10}")
    for part in asked:
        results |= _MEASURES[part]()
        print(f"{_WHAT[part]:48}{results[part]:10.4g}{LIMITS[part]:10.4g}", flush=True)
    print(json.dumps(results))


def _start_jax() -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)


def tracing(annotations: int = 50, operations: int = 10, rounds: int = 40) -> dict[str, Any]:
    """The median over interleaved rounds of the time to trace, for logical names and for split."""
    import jax
    import jax.numpy as jnp

    mesh, rules = _mesh_and_rules()
    sharding = jax.NamedSharding(mesh, rules.spec(("batch", "embed"), mesh=mesh))
    from gshard_annotate import annotate, rules_scope, split

    def program(annotation: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
        def function(x: jax.Array) -> jax.Array:
            with rules_scope(rules, mesh):
                for _ in range(annotations):
                    x = annotation(x)
                    for _ in range(operations):
                        x = x * 1.5
            return x

        return function

    programs = {
        "raw": program(lambda x: jax.lax.with_sharding_constraint(x, sharding)),
        "annotate": program(lambda x: annotate(x, "batch", "embed")),
        "split": program(lambda x: split(x, 0, "data")),
    }
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, function in programs.items():
            began = time.process_time()
            jax.make_jaxpr(lambda x, function=function: function(x))(x)
            seconds[name].append(time.process_time() - began)
    raw = statistics.median(seconds["raw"])
    ratios = {name: statistics.median(seconds[name]) / raw for name in ("annotate", "split")}
    return {"tracing": max(ratios.values()), "tracing_ratios": ratios}


def program() -> dict[str, Any]:
    """How many instructions a small program with ours has that the raw one has not, and back."""
    import collections
    import re

    import jax
    import jax.numpy as jnp

    from gshard_annotate import annotate, rules_scope

    mesh, rules = _mesh_and_rules()
    sharding = jax.NamedSharding(mesh, rules.spec(("batch", "embed"), mesh=mesh))

    def ours(x: jax.Array, w: jax.Array) -> jax.Array:
        with rules_scope(rules, mesh):
            return annotate(jnp.tanh(annotate(x, "batch", "embed") @ w), "batch", "embed").sum()

    def raw(x: jax.Array, w: jax.Array) -> jax.Array:
        x = jax.lax.with_sharding_constraint(x, sharding)
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), sharding).sum()

    def instructions(function: Callable[..., Any]) -> collections.Counter[str]:
        shapes = (jnp.ones((8, 16)), jnp.ones((16, 16)))
        compiled = jax.jit(jax.value_and_grad(function, (0, 1))).lower(*shapes).compile()
        text = re.sub(r", metadata=\{[^}]*\}", "", compiled.as_text() or "")
        # By type and operation: names are numbered by what XLA built before.
        return collections.Counter(re.findall(r" = (\S+ [\w-]+)\(", text))

    a, b = instructions(ours), instructions(raw)
    return {"program": ((a - b) + (b - a)).total()}


def tree(parameters: int = 5000) -> dict[str, Any]:
    """The time from a tree of names and shapes to its specs, with each shape different."""
    import jax
    import jax.numpy as jnp

    from gshard_annotate import tree_specs

    mesh, rules = _mesh_and_rules()
    shapes = {
        f"layer{i}": {"w": jax.ShapeDtypeStruct((8 * (i + 1), 16), jnp.float32)}
        for i in range(parameters)
    }
    names = {layer: {"w": ("batch", "embed")} for layer in shapes}
    began = time.perf_counter()
    tree_specs(names, shapes, rules, mesh)
    return {"tree": time.perf_counter() - began}


def importing(rounds: int = 5) -> dict[str, Any]:
    """The median over fresh processes."""
    code = (
        "import jax, time; began = time.perf_counter(); import gshard_annotate; "
        "print(time.perf_counter() - began)"
    )
    on_cpu = {**os.environ, "JAX_PLATFORMS": "cpu"}
    seconds = [
        float(subprocess.check_output([sys.executable, "-c", code], text=True, env=on_cpu))
        for _ in range(rounds)
    ]
    return {"import": statistics.median(seconds)}


def inspector() -> dict[str, Any]:
    """Lowers and compiles the step once, inside `inspect_lowered`, which times the compiler."""
    import jax
    import jax.numpy as jnp
    import optax

    from gshard_annotate import DEFAULT_RULES, make_mesh, topology_devices
    from gshard_annotate.inspector import inspect_lowered
    from gshard_train import state
    from gshard_train.loss import LossConfig
    from gshard_train.models.config import TransformerConfig
    from gshard_train.step import make_step

    mesh = make_mesh({"data": 1, "expert": -1}, devices=topology_devices("v3:32x32"))
    config = TransformerConfig(
        source_vocab_size=64000,
        target_vocab_size=32000,
        dispatch="gather",
        dtype=jnp.bfloat16,
        remat="full",
    )
    # Without moments, as the paper's Adafactor nearly is: Adam's do not fit beside the rest.
    model, optimizer = state.abstract_model(config), optax.sgd(1e-3)
    step: Any = make_step(model, optimizer, LossConfig(), DEFAULT_RULES, mesh)
    batch = {
        name: jax.ShapeDtypeStruct((2048, 256), jnp.int32)
        for name in (
            "encoder_input_tokens",
            "decoder_input_tokens",
            "decoder_target_tokens",
            "decoder_loss_weights",
        )
    }
    arguments = (state.abstract_state(model, optimizer, DEFAULT_RULES, mesh), batch)
    began = time.perf_counter()
    lowered = step.trace(*arguments).lower(lowering_platforms=("tpu",))
    lowering = time.perf_counter() - began
    began = time.perf_counter()
    compiled, report = inspect_lowered(lowered, mesh=mesh, title="train step")
    total = time.perf_counter() - began
    return {
        "inspector": total - report.compile_seconds,
        "inspector_lowering": lowering,
        "inspector_compile": report.compile_seconds,
        "inspector_text_mb": len(compiled.as_text() or "") / 1e6,
        "inspector_values": len(report.values),
        "inspector_collectives": len(report.exchanges),
    }


def _mesh_and_rules() -> tuple[Any, Any]:
    from gshard_annotate import Rules, make_mesh

    rules = Rules((("batch", "data"), ("embed", None)))
    return make_mesh({"data": 2, "expert": 4}), rules


_MEASURES: dict[str, Callable[[], dict[str, Any]]] = {
    "tracing": tracing,
    "program": program,
    "tree": tree,
    "import": importing,
    "inspector": inspector,
}

if __name__ == "__main__":
    main()
