"""How many experts a checkpoint and a model have, and which ways lead from the one to the other."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Path = tuple[str, ...]
HOWS = ("split", "merge", "copy", "average", "upcycle")


class Experts(NamedTuple):
    """The experts of each MoE layer; 0 of a dense model, whose width is that of its layers."""

    count: int
    width: int

    def __str__(self) -> str:
        if not self.count:
            return f"dense layers of width {self.width}"
        return f"{self.count} expert{'s' * (self.count > 1)} of width {self.width}"


def moe_layers(params: Mapping[str, Any], path: Path = ()) -> list[Path]:
    """Where the MoE layers stand in a tree of parameters."""
    if "router" in params:
        return [path]
    inner = [(name, each) for name, each in params.items() if isinstance(each, Mapping)]
    return [found for name, each in inner for found in moe_layers(each, (*path, name))]


def at(tree: Any, path: Sequence[str]) -> Any:
    """What stands at a path of nested dicts, None where nothing does."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def experts_at(params: Any, layers: Sequence[Path]) -> Experts | None:
    """The experts of these layers, from the shapes of arrays; None where there is no such layer."""
    for path in layers:
        layer = at(params, path)
        if isinstance(layer, Mapping) and "wi" in layer:
            count = layer["router"].shape[-1] if "router" in layer else 0
            return Experts(count, layer["wi"].shape[-1])
    return None


def factor(how: str, before: Experts, after: Experts) -> int:
    """By how much a way changes the number of experts; 0 where it does not lead there."""
    many, few = (before, after) if how in ("merge", "average") else (after, before)
    if how == "upcycle":
        return after.count if before.count == 0 and before.width == after.width else 0
    if not 0 < few.count < many.count or many.count % few.count:
        return 0
    times = many.count // few.count
    width = few.width if how in ("copy", "average") else few.width / times
    return times if many.width == width else 0


def ways(before: Experts, after: Experts) -> list[str]:
    """The ways that lead from these experts to those."""
    return [how for how in HOWS if factor(how, before, after)]


def hint(saved: Any, wanted: Any, model_dir: str) -> str:
    """What to do where a checkpoint has another number of experts than the model, or nothing.

    Args:
      saved: a checkpoint's tree of shapes.
      wanted: the model's.
      model_dir: of the checkpoint.
    """
    of_saved, of_wanted = saved.get("params", {}), wanted.get("params", {})
    layers = moe_layers(of_wanted)
    before, after = experts_at(of_saved, layers), experts_at(of_wanted, layers)
    if before is None or after is None or before == after:
        return ""
    found = ways(before, after)
    how = f"--how={' or '.join(found)}" if found else "--how=..."
    none = "" if found else f"; {lacking(before, after)}"
    return (
        f". The checkpoint has {before}, the model {after}: with another MODEL_DIR, python -m "
        f"gshard_train.resize --from_dir={model_dir} {how} makes of the one a checkpoint for the "
        f"other{none}"
    )


def lacking(before: Experts, after: Experts) -> str:
    """Why no way leads from these experts to those, and what would."""
    if before == after:
        return f"both have {before}, so there is nothing to change"
    if not after.count:
        return "experts do not become dense layers; give num_experts"
    if not before.count:
        return f"experts are as wide as the dense layers they come from; set width {before.width}"
    few, many = sorted((before.count, after.count))
    if many % few or many == few:
        return f"one number has to be a multiple of the other, and {many} is none of {few}"
    times = many // few
    other = before.width // times if before.count == few else before.width * times
    return (
        f"experts keep their width, or {times} parts make one: set "
        f"TransformerConfig.expert_mlp = {before.width} or {other}"
    )
