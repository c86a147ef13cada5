"""The tensors of one block of a state dict, read strictly: none missing, surplus or misshapen."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

Shapes = Mapping[str, tuple[int, ...]]

# How both libraries call the router's matrix: what lies before it is a block's prefix.
ROUTER = "router.classifier.weight"


def as_prefixes(prefix: str | Sequence[str]) -> tuple[str, ...]:
    """One prefix, or those of the layers to stack."""
    return (prefix,) if isinstance(prefix, str) else tuple(prefix)


def prefix_faults(prefix: str | Sequence[str]) -> list[str]:
    """That there is no prefix at all."""
    return [] if len(as_prefixes(prefix)) else [f"prefix is {prefix!r}; give one for each layer"]


def to_numpy(tensor: Any) -> np.ndarray:
    """A NumPy array of a tensor; bfloat16, which NumPy does not read from torch, as float32."""
    if hasattr(tensor, "detach"):  # torch's, which need not be installed
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
    return np.asarray(tensor)


def block_faults(tensors: Mapping[str, Any], prefix: str, shapes: Shapes | None) -> list[str]:
    """What is wrong with the tensors behind a prefix, one sentence for each kind."""
    found = {name.removeprefix(prefix): name for name in tensors if name.startswith(prefix)}
    if not found:
        return [f"no tensor starts with {prefix!r}; {_other_blocks(tensors)}"]
    if shapes is None:  # not known
        return []
    faults = []
    if missing := [prefix + name for name in shapes if name not in found]:
        faults.append(f"missing {grouped(missing)}")
    if surplus := [prefix + name for name in found if name not in shapes]:
        faults.append(f"surplus {grouped(surplus)}")
    for name, shape in shapes.items():
        given = tuple(tensors[found[name]].shape) if name in found else shape
        if given != shape:
            faults.append(f"{prefix}{name} has shape {given}, needed is {shape}")
    return faults


def read(tensors: Mapping[str, Any], prefix: str | Sequence[str], name: str) -> np.ndarray:
    """The tensor of this name; of a sequence of prefixes each block's, on a leading axis."""
    if isinstance(prefix, str):
        return to_numpy(tensors[prefix + name])
    return np.stack([to_numpy(tensors[one + name]) for one in prefix])


def grouped(names: Iterable[str]) -> str:
    """The names in a line, numbered experts that follow one another as `expert_{2..5}`."""
    numbered = [(re.split(r"(?<=expert_)(\d+)", name, maxsplit=1)) for name in names]
    single = [parts[0] for parts in numbered if len(parts) == 1]
    experts = sorted((head, tail, int(n)) for head, n, tail in (p for p in numbered if len(p) == 3))
    for (head, tail), members in groupby(experts, key=lambda expert: expert[:2]):
        runs = groupby(enumerate(n for *_, n in members), key=lambda pair: pair[1] - pair[0])
        for _, run in runs:
            first, *_, last = [n for _, n in run] * 2
            single.append(f"{head}{first if first == last else f'{{{first}..{last}}}'}{tail}")
    return ", ".join(single)


def _other_blocks(tensors: Mapping[str, Any]) -> str:
    prefixes = [name.removesuffix(ROUTER) for name in tensors if name.endswith(ROUTER)]
    if not prefixes:
        return f"and none ends with {ROUTER!r}: there is no sparse block"
    return f"sparse blocks start with {', '.join(map(repr, prefixes))}"
