"""How evenly the tokens of each layer reach its experts: figures, and a picture.

Axes: L MoE layers, E experts. A load of 1 is an expert's equal share of the layer's choices.
"""

import os
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

FILE_NAME = "expert_load.png"
_SHOWN = 2.0  # colours end at twice the equal share


def relative(choices_LE: np.ndarray) -> Float[np.ndarray, "L E"]:
    """Each expert's load, 1 where all are equal; 0 in a layer that got nothing."""
    return choices_LE / np.maximum(choices_LE.mean(axis=1, keepdims=True), 1e-9)


def figures(load_LE: Float[np.ndarray, "L E"]) -> dict[str, float]:
    """The highest and lowest load of any expert, and the share of experts that got nothing."""
    return {
        "expert_load_max": float(load_LE.max()),
        "expert_load_min": float(load_LE.min()),
        "experts_without_load": float((load_LE == 0).mean()),
    }


def draw(
    directory: str | os.PathLike[str],
    load_LE: Float[np.ndarray, "L E"],
    layers: Sequence[str],
    *,
    step: int,
) -> UInt8[np.ndarray, "H W 3"]:
    """Writes `expert_load.png`, a row for each layer, and returns its pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 1.5 + 0.3 * len(layers)), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = axes.imshow(
        load_LE, aspect="auto", cmap="RdBu_r", vmin=0.0, vmax=_SHOWN, interpolation="nearest"
    )
    axes.set_yticks(range(len(layers)), layers)
    axes.set_xlabel("expert")
    axes.set_title(f"expert load at step {step:,}; 1 = an equal share")
    figure.colorbar(shown, extend="max")
    canvas.draw()
    path = os.path.join(directory, FILE_NAME)
    canvas.print_png(f"{path}.new")
    os.replace(f"{path}.new", path)
    return np.asarray(canvas.buffer_rgba())[..., :3]
