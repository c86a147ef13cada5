"""The state of a training run, born sharded: no parameter is ever whole on one device."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gshard_annotate import Rules, tree_shardings
from gshard_train.models.transformer import EncoderDecoder, TransformerConfig
from gshard_train.optimizer import state_shardings

Params = dict[str, Any]


class TrainState(NamedTuple):
    """What a checkpoint holds, beside the position of the training feed.

    The same tree also carries one sharding, or one shape, for each array.
    """

    step: Any  # int32: updates made so far
    params: Any  # nested dict of arrays
    opt_state: Any
    key: Any  # uint32 data of the run's random key; a step's key is derived from it


class Model(NamedTuple):
    """A model without its arrays: its structure, and the shape and names of each parameter."""

    graph: nnx.GraphDef
    variables: nnx.State
    config: TransformerConfig

    def merge(self, params: Params) -> EncoderDecoder:
        """The module with these parameters in it."""
        variables = jax.tree.map(lambda leaf: leaf, self.variables)
        nnx.replace_by_pure_dict(variables, params)
        return nnx.merge(self.graph, variables)

    def shapes(self) -> Params:
        """Shape and dtype of each parameter."""
        return nnx.to_pure_dict(self.variables)

    def names(self) -> Params:
        """The logical name of each dimension of each parameter."""
        return nnx.to_pure_dict(
            jax.tree.map(
                lambda variable: variable.get_metadata("out_sharding"),
                self.variables,
                is_leaf=lambda node: isinstance(node, nnx.Variable),
            )
        )


def abstract_model(config: TransformerConfig) -> Model:
    """The model of a config; allocates nothing."""
    module = nnx.eval_shape(lambda: EncoderDecoder(config, rngs=nnx.Rngs(params=0)))
    return Model(*nnx.split(module), config)


def shardings(
    model: Model, optimizer: optax.GradientTransformation, rules: Rules, mesh: Mesh
) -> TrainState:
    """A sharding for each array of the state, from the parameters' names and the rules.

    Raises:
      ValueError: naming every parameter whose shape, names and mesh do not fit together.
    """
    shapes = model.shapes()
    params = tree_shardings(model.names(), shapes, rules, mesh)
    replicated = NamedSharding(mesh, PartitionSpec())
    opt_state = state_shardings(optimizer, shapes, params)
    return TrainState(replicated, params, opt_state, replicated)


def create(
    model: Model,
    optimizer: optax.GradientTransformation,
    rules: Rules,
    mesh: Mesh,
    *,
    seed: int,
) -> TrainState:
    """A new state, each array made in place on the devices that hold it."""
    return compiled_init(model, optimizer, rules, mesh, seed=seed)()


def compiled_init(
    model: Model,
    optimizer: optax.GradientTransformation,
    rules: Rules,
    mesh: Mesh,
    *,
    seed: int,
) -> jax.stages.Compiled:
    """The program that makes a new state."""

    def init() -> TrainState:
        init_key, run_key = jax.random.split(jax.random.key(seed))
        module = EncoderDecoder(model.config, rngs=nnx.Rngs(params=init_key))
        params = nnx.to_pure_dict(nnx.state(module))
        return TrainState(
            jnp.zeros((), jnp.int32), params, optimizer.init(params), jax.random.key_data(run_key)
        )

    out_shardings = shardings(model, optimizer, rules, mesh)
    # It runs once: on CPU, LLVM's optimizations would take three times as long as they save.
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    options: dict[str, str | bool] = {"xla_backend_optimization_level": "0"} if on_cpu else {}
    return jax.jit(init, out_shardings=out_shardings).lower().compile(options)


def abstract_state(
    model: Model, optimizer: optax.GradientTransformation, rules: Rules, mesh: Mesh
) -> TrainState:
    """Shape, dtype and sharding of each array of the state: what to restore a checkpoint into."""
    params = model.shapes()
    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    shapes = TrainState(
        jax.ShapeDtypeStruct((), jnp.int32), params, jax.eval_shape(optimizer.init, params), key
    )
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        shardings(model, optimizer, rules, mesh),
    )
