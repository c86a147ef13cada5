"""A model's parameters as safetensors files, and back.

Files are filled up to a size; an index says which tensor is in which, as other libraries expect it.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from gshard_train.errors import UserError
from gshard_train.exported.parameter_names import Tensor, by_path, nested, tensors
from gshard_train.state import Model, Params

INDEX = "model.safetensors.index.json"
_SHOWN = 20  # tensors named in one message
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F64": "float64", "F16": "float16"}


def save_parameters(
    params: Params,
    model: Model,
    directory: Path,
    *,
    split_layers: bool = False,
    max_file_bytes: int = 5 * 2**30,
) -> list[Path]:
    """Writes the files and returns them; the host holds the tensors of one file at a time.

    Args:
      params: arrays, on any devices of this process.
      model: gives the names.
      directory: where the files go.
      split_layers: a tensor for each layer instead of one for a stack of them.
      max_file_bytes: a file is closed before it grows larger, unless one tensor alone is.
    """
    arrays, names = by_path(params), tensors(model, split_layers=split_layers)
    groups = list(_groups(names, arrays, max_file_bytes))
    files, weight_map = [], {}
    for number, group in enumerate(groups, start=1):
        files.append(directory / _file_name(number, len(groups)))
        values = {name: _value(arrays, names[name]) for name in group}
        # As open to others as any new file; the library's own are for the owner alone.
        files[-1].touch()
        mode = files[-1].stat().st_mode
        save_file(values, files[-1], metadata={"format": "np"})
        files[-1].chmod(mode)
        weight_map |= dict.fromkeys(group, files[-1].name)
    if len(files) > 1:
        metadata = {"total_size": sum(array.nbytes for array in arrays.values())}
        index = {"metadata": metadata, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=1), "utf-8")
    return files


def load_parameters(
    directory: str | Path, model: Model, *, shardings: Params | None = None
) -> Params:
    """The parameters that files hold, for a model of the same shapes.

    Layers may be stacked or split. With shardings only a device's own part is read for it.

    Args:
      directory: of the files.
      model: whose parameters they are.
      shardings: one for each parameter; without, all lie on JAX's first device.

    Raises:
      UserError: naming every tensor that is missing, left over or of another shape or dtype.
    """
    shapes, places = by_path(model.shapes()), by_path(shardings or {})
    with contextlib.ExitStack() as stack:
        files = _open(Path(directory), stack)
        names = min(
            (tensors(model, split_layers=split) for split in (False, True)),
            key=lambda names: len(names.keys() ^ files.keys()),
        )
        if faults := list(_differences(files, names, shapes)):
            raise UserError(_refusal(Path(directory), faults))
        sources: dict[tuple[str, ...], list[str]] = {}
        for name, tensor in names.items():  # layers in their order
            sources.setdefault(tensor.path, []).append(name)
        return nested(
            {
                path: _array(
                    [files[name] for name in sources[path]],
                    shape,
                    places.get(path),
                    split=names[sources[path][0]].layer is not None,
                )
                for path, shape in shapes.items()
            }
        )


def _groups(
    names: Mapping[str, Tensor], arrays: Mapping[tuple[str, ...], Any], limit: int
) -> Iterator[list[str]]:
    """Names whose tensors go into one file each."""
    group, size = [], 0
    for name, (path, layer) in names.items():
        count = 1 if layer is None else arrays[path].shape[0]
        nbytes = arrays[path].nbytes // count
        if group and size + nbytes > limit:
            yield group
            group, size = [], 0
        group.append(name)
        size += nbytes
    yield group


def _file_name(number: int, count: int) -> str:
    if count == 1:
        return "model.safetensors"
    return f"model-{number:05}-of-{count:05}.safetensors"


def _value(arrays: Mapping[tuple[str, ...], Any], tensor: Tensor) -> np.ndarray:
    array = arrays[tensor.path]
    return np.ascontiguousarray(array if tensor.layer is None else array[tensor.layer])


def _open(directory: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Every tensor's slice, of which parts can be read."""
    if not (paths := sorted(directory.glob("*.safetensors"))):
        raise UserError(f"{directory} holds no *.safetensors; give a directory that export wrote")
    found = {}
    for path in paths:
        try:
            file = stack.enter_context(safe_open(path, framework="numpy"))
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} cannot be read as safetensors: {error}") from error
        found |= {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    return found


def _differences(
    files: Mapping[str, Any], names: Mapping[str, Tensor], shapes: Mapping[tuple[str, ...], Any]
) -> Iterator[str]:
    for name in sorted({*files, *names}):
        have = want = ""
        if name in files:
            dtype = files[name].get_dtype()
            have = f"{_DTYPES.get(dtype, dtype)}{files[name].get_shape()}"
        if name in names:
            path, layer = names[name]
            shape = list(shapes[path].shape)[0 if layer is None else 1 :]
            want = f"{np.dtype(shapes[path].dtype).name}{shape}"
        if not have:
            yield f"{name} {want} is not in the files"
        elif not want:
            yield f"{name} {have} is not in the model"
        elif have != want:
            yield f"{name} is {have} in the files and {want} in the model"


def _refusal(directory: Path, faults: list[str]) -> str:
    shown = faults[:_SHOWN]
    if len(faults) > _SHOWN:
        shown.append(f"and {len(faults) - _SHOWN} more")
    first = (
        f"{directory} holds the parameters of another model: {len(faults)} tensors differ; use "
        "the sizes in the config.json beside them"
    )
    return "\n".join([first, *(f"  {line}" for line in shown)])


def _array(slices: list[Any], like: Any, sharding: NamedSharding | None, *, split: bool):
    """One parameter from its tensor, or from those of its layers."""

    def read(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        if not split:
            return slices[0][index]
        return np.stack([one[index[1:]] for one in slices[index[0]]])

    if sharding is None:
        return jax.numpy.asarray(read((slice(None),) * len(like.shape)))
    return jax.make_array_from_callback(like.shape, sharding, read)
