"""Prints the collectives of MoE layers on absent TPUs, as one line of JSON; see test_moe_for_tpu.

Each is the gradient of one layer at the paper's sizes: M 1024, H 8192, 2048 tokens and one expert
per core, activations in bfloat16.
"""

import functools
import json

import jax

from bench_moe_tpu import layer_gradient, mesh_of
from gshard_annotate import DEFAULT_RULES, collectives, make_mesh, topology_devices

SAVED = jax.checkpoint_policies.save_only_these_names("moe_dispatch", "moe_combine")


def moved(lowered):
    return sorted((one.kind, one.bytes) for one in collectives(lowered.compile()))


def main():
    jax.config.update("jax_platforms", "cpu")
    mesh = mesh_of("v3:8x8")
    small = make_mesh({"data": 2, "expert": 4}, devices=topology_devices("v3:2x2"))
    saved = functools.partial(jax.checkpoint, policy=SAVED)
    data_alone = DEFAULT_RULES.replace(group="data")
    lowered = {
        "layer": layer_gradient(mesh, masked=False),
        "padding, exchanged tokens saved": layer_gradient(mesh, remat=saved),
        "everything again": layer_gradient(mesh, masked=False, remat=jax.checkpoint),
        "groups over data alone": layer_gradient(small, masked=False, rules=data_alone),
    }
    print(json.dumps({name: moved(program) for name, program in lowered.items()}))


if __name__ == "__main__":
    main()
