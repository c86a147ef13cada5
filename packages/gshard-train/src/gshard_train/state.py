"""The state of a training run, born sharded: no parameter is ever whole on one device."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gshard_annotate import Rules, tree_shardings
from gshard_train.models.transformer import EncoderDecoder, TransformerConfig
from gshard_train.optimizer_sharding import state_shardings

Params = dict[str, Any]
HOST_MEMORY = "pinned_host"


class TrainState(NamedTuple):
    """What a checkpoint holds, beside the position of the training feed.

    The same tree also carries one sharding, or one shape, for each array.
    """

    step: Any  # int32: steps made so far, with those whose update was left out
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
    graph, variables = nnx.split(module)
    return Model(graph, jax.eval_shape(lambda tree: _as_trained(tree, config), variables), config)


def shardings(
    model: Model,
    optimizer: optax.GradientTransformation,
    rules: Rules,
    mesh: Mesh,
    *,
    offload_optimizer: bool = False,
) -> TrainState:
    """A sharding for each array of the state, from the parameters' names and the rules.

    An expert's dimension called `embed` or `mlp` follows the rule for `expert_embed` or
    `expert_mlp` where there is one: experts are split already, and what splits the others may not
    be free for them.

    Args:
      model: what is trained.
      optimizer: whose state it is.
      rules: what the names mean.
      mesh: where the arrays go.
      offload_optimizer: whether the optimizer's arrays lie in the memory of the devices' hosts.

    Raises:
      ValueError: naming every parameter whose shape, names and mesh do not fit together.
    """
    shapes = model.shapes()
    names = _names_for(rules, model.names())
    params = tree_shardings(names, shapes, rules, mesh)
    replicated = NamedSharding(mesh, PartitionSpec())
    opt_state = state_shardings(optimizer, shapes, names, rules, mesh)
    if offload_optimizer:
        # Scalars stay: there is nothing to save.
        opt_state = jax.tree.map(
            lambda one: one.with_memory_kind(HOST_MEMORY) if len(one.spec) else one, opt_state
        )
    return TrainState(replicated, params, opt_state, replicated)


def offload_fault(mesh: Mesh) -> str | None:
    """Why the devices of a mesh cannot keep arrays in their hosts' memory, if so."""
    device = mesh.devices.flat[0]
    kinds = [memory.kind for memory in device.addressable_memories()]
    if HOST_MEMORY in kinds:
        return None
    return (
        f"offload_optimizer=True needs the memory {HOST_MEMORY!r}, and {device.device_kind} "
        f"devices have {', '.join(kinds) or 'none'}; set Experiment.offload_optimizer = False"
    )


def _names_for(rules: Rules, names: Params) -> Params:
    """The names by which the rules find each dimension."""
    known = {name for name, _ in rules.pairs}

    def of_array(each: tuple[str | None, ...]) -> tuple[str | None, ...]:
        if "expert" not in each:
            return each
        return tuple(own if (own := f"expert_{name}") in known else name for name in each)

    return jax.tree.map(of_array, names, is_leaf=lambda node: isinstance(node, tuple))


def create(
    model: Model,
    optimizer: optax.GradientTransformation,
    rules: Rules,
    mesh: Mesh,
    *,
    seed: int,
    offload_optimizer: bool = False,
    part: Callable[[Any], Any] = lambda state: state,
) -> Any:
    """A new state, or what `part` takes out of it, made in place on the devices that hold it."""
    return compiled_init(
        model, optimizer, rules, mesh, seed=seed, offload_optimizer=offload_optimizer, part=part
    )()


def compiled_init(
    model: Model,
    optimizer: optax.GradientTransformation,
    rules: Rules,
    mesh: Mesh,
    *,
    seed: int,
    offload_optimizer: bool = False,
    part: Callable[[Any], Any] = lambda state: state,
) -> jax.stages.Compiled:
    """The program that makes a new state, or what `part` takes out of it."""

    def init() -> TrainState:
        init_key, run_key = jax.random.split(jax.random.key(seed))
        module = EncoderDecoder(model.config, rngs=nnx.Rngs(params=init_key))
        params = _as_trained(nnx.to_pure_dict(nnx.state(module)), model.config)
        return TrainState(
            jnp.zeros((), jnp.int32), params, optimizer.init(params), jax.random.key_data(run_key)
        )

    out_shardings = shardings(model, optimizer, rules, mesh, offload_optimizer=offload_optimizer)
    # It runs once: on CPU, LLVM's optimizations would take three times as long as they save.
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    options: dict[str, str | bool] = {"xla_backend_optimization_level": "0"} if on_cpu else {}
    made = jax.jit(lambda: part(init()), out_shardings=part(out_shardings))
    return made.lower().compile(options)


def abstract_state(
    model: Model,
    optimizer: optax.GradientTransformation,
    rules: Rules,
    mesh: Mesh,
    *,
    offload_optimizer: bool = False,
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
        shardings(model, optimizer, rules, mesh, offload_optimizer=offload_optimizer),
    )


def _as_trained(params: Any, config: TransformerConfig) -> Any:
    """Drawn parameters, which are float32, in float64 where activations are.

    Both kinds of model then begin with the same numbers.
    """
    wide = jnp.promote_types(config.dtype, jnp.float32)
    return jax.tree.map(lambda param: param.astype(wide), params)
