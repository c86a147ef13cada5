"""How many experts a checkpoint and a model have, and which ways lead from the one to the other."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

Path = tuple[str, ...]
HOWS = ("split", "merge", "copy", "average", "upcycle")


@dataclasses.dataclass(frozen=True)
class Experts:
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
    if width_after(how, before, after.count) != after.width:
        return 0
    if how == "upcycle":
        return after.count
    few, many = sorted((before.count, after.count))
    return many // few


def width_after(how: str, before: Experts, count: int) -> int | None:
    """The width that a way gives to so many experts; None where it leads to no such number."""
    if how == "upcycle":
        return None if before.count else before.width
    many, few = (before.count, count) if how in ("merge", "average") else (count, before.count)
    if not 0 < few < many or many % few:
        return None
    if how == "split":
        return None if before.width % (many // few) else before.width // (many // few)
    return before.width * (many // few) if how == "merge" else before.width


def ways(before: Experts, after: Experts) -> list[str]:
    """The ways that lead from these experts to those."""
    return [how for how in HOWS if factor(how, before, after)]


def hint(saved: Any, wanted: Any, model_dir: str) -> str:
    """A sentence on what to do where a checkpoint has other experts than the model, or nothing.

    Args:
      saved: a checkpoint's tree of shapes.
      wanted: the model's.
      model_dir: of the checkpoint.
    """
    of_saved, of_wanted = saved.get("params", {}), wanted.get("params", {})
    layers = moe_layers(of_wanted) or moe_layers(of_saved)
    before, after = experts_at(of_saved, layers), experts_at(of_wanted, layers)
    if before is None or after is None or before == after:
        return ""
    told = f". The checkpoint has {before} and the model {after}"
    if not (found := ways(before, after)):
        return f"{told}, and none becomes the other: {lacking(before, after)}"
    return (
        f"{told}: python -m gshard_train.resize with the same flags, another MODEL_DIR and "
        f"--from_dir={model_dir} --how={' or '.join(found)} makes one of the other"
    )


def lacking(before: Experts, after: Experts) -> str:
    """Why no way leads from these experts to those, and what would."""
    if before == after:
        return f"both have {before}, so there is nothing to change"
    if not after.count:
        return "experts do not become dense layers; give num_experts"
    if not before.count:
        return f"experts are as wide as the dense layers they come from, {before.width}"
    widths = {how: width_after(how, before, after.count) for how in HOWS}
    if fits := [f"{width} ({how})" for how, width in widths.items() if width]:
        return f"set TransformerConfig.expert_mlp = {' or '.join(fits)}"
    few, many = sorted((before.count, after.count))
    return f"one number has to be a multiple of the other, and {many} is not a multiple of {few}"
