"""What the GShard paper prints and draws (arXiv 2006.16668 v1), for putting ours beside it.

Tables are as printed. Figures were read by eye from the plots, to about 3 %. Compile times stand
nowhere in the paper: it says in words that they hardly depend on the number of partitions.

D is the number of devices, which on TPU v3 are cores.
"""

from __future__ import annotations

from typing import NamedTuple

TITLE = "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding"
SOURCE = "arXiv 2006.16668 v1"
TOKENS = 1e12  # of most trainings


class Model(NamedTuple):
    """A row of Tables 1 and 3.

    Attributes:
      gin: our file of it.
      layers: encoder and decoder together.
      experts: of each MoE layer; 0 in the dense model.
      cores: of TPU v3.
      billions: of parameters, as printed.
      batch_tokens: source tokens of a step.
      steps_per_second: Table 3; None where the paper does not say.
      days: of a training.
      core_years: likewise.
      tokens: of that training.
    """

    gin: str
    layers: int
    experts: int
    cores: int
    billions: float
    batch_tokens: int
    steps_per_second: float | None
    days: float | None
    core_years: float | None
    tokens: float = TOKENS


_4M, _1M = 1 << 22, 1 << 20

MODELS = {
    "MoE(2048E, 60L)": Model("moe_2048e_60l", 60, 2048, 2048, 1000, _4M, None, None, None),
    "MoE(2048E, 36L)": Model("moe_2048e_36l", 36, 2048, 2048, 600, _4M, 0.72, 4.0, 22.4),
    "MoE(2048E, 12L)": Model("moe_2048e_12l", 12, 2048, 2048, 200, _4M, 2.15, 1.4, 7.5),
    "MoE(512E, 36L)": Model("moe_512e_36l", 36, 512, 512, 150, _1M, 1.05, 11.0, 15.5),
    "MoE(512E, 12L)": Model("moe_512e_12l", 12, 512, 512, 50, _1M, 3.28, 3.5, 4.9),
    "MoE(128E, 36L)": Model("moe_128e_36l", 36, 128, 128, 37, _1M, 0.67, 17.3, 6.1),
    "MoE(128E, 12L)": Model("moe_128e_12l", 12, 128, 128, 12.5, _1M, 2.16, 5.4, 1.9),
    # 300k steps.
    "T(96L)": Model("dense_96l", 96, 0, 2048, 2.3, _4M, None, 42, 235.5, 1.2e12),
}


class Memory(NamedTuple):
    """A bar of Figure 7: GB on one core."""

    weights: float
    total: float


# By experts and layers.
MEMORY = {
    (128, 12): Memory(1.9, 4.2),
    (512, 12): Memory(2.05, 4.25),
    (2048, 12): Memory(2.3, 4.85),
    (2048, 24): Memory(4.2, 8.75),
    (2048, 36): Memory(6.0, 12.0),
    (2048, 60): Memory(9.55, 13.85),
}


class Bar(NamedTuple):
    """A part of Figure 8: microseconds, measured and by the paper's roofline."""

    measured: float
    roofline: float


# Forward pass of one MoE and one dense layer, by experts. The paper draws the einsums and the
# cumsum of gating apart.
STEP_TIME = {
    128: {
        "attention projections": Bar(1350, 1130),
        "attention": Bar(500, 270),
        "dense feed-forward": Bar(1500, 1100),
        "gating and dispatch": Bar(800, 600),
        "all-to-all": Bar(1250, 600),
        "experts": Bar(2450, 2270),
    },
    512: {
        "attention projections": Bar(1350, 1130),
        "attention": Bar(500, 270),
        "dense feed-forward": Bar(1500, 1100),
        "gating and dispatch": Bar(1050, 600),
        "all-to-all": Bar(3000, 1250),
        "experts": Bar(2400, 2270),
    },
    2048: {
        "attention projections": Bar(1350, 1130),
        "attention": Bar(500, 270),
        "dense feed-forward": Bar(1500, 1100),
        "gating and dispatch": Bar(2700, 750),
        "all-to-all": Bar(4800, 1650),
        "experts": Bar(2420, 2270),
    },
}
STEP_TIME_TOTAL = {128: Bar(7900, 6000), 512: Bar(9900, 6650), 2048: Bar(13250, 7150)}
# From 128 to 2048 experts, in words: the step, and its all-to-all alone.
STEP_TIME_GROWTH = 1.7
ALL_TO_ALL_GROWTH = 3.75

# Figure 9: microseconds by partitions, for so many MB on each.
PARTITIONS = (16, 32, 64, 128, 256, 512, 1024, 2048)
EXCHANGES = {
    ("all-to-all", 8): (285, 295, 545, 725, 1225, 1300, 2420, 2360),
    ("all-to-all", 32): (1110, 1150, 2190, 2600, 5000, 5100, 10300, 10600),
    ("all-reduce", 8): (285, 170, 235, 175, 275, 185, 210, 212),
    ("all-reduce", 32): (1140, 610, 925, 550, 960, 590, 525, 605),
}


class Growth(NamedTuple):
    """A row of Table 4: powers of D, and the collective that it names."""

    compute: float
    communication: float
    collective: str = ""


OPERATORS = {
    "add, A split": Growth(0, 0),
    "matmul AB,BC->AC, B split": Growth(0, 0, "all-reduce"),
    "matmul AB,BC->AC, A split": Growth(0, 0),
    "matmul AB,BC->AC, A and B split": Growth(1, 1, "all-gather or collective-permute"),
    "matmul AB,BC->AC, A and C split": Growth(1, 1, "all-gather or collective-permute"),
    "reduce AB->A, A split": Growth(0, 0),
    "reduce AB->B, A split": Growth(0, 0, "all-reduce"),
    "dispatch GSEC,GSM->EGCM, G to E": Growth(0, 0.5, "all-to-all"),
    "convolution, space split": Growth(0, 0, "collective-permute"),
}

WITHOUT_HARDWARE = (
    "Translation quality (Figures 1 and 6, Table 2): it takes the paper's corpus and its machines.",
    "Measured times of steps and exchanges: those here are estimates from what the compiler made.",
    "The share of peak that a step reaches (Figure 8): here nothing waits and nothing overlaps.",
    "Numerical trouble of the model with 1T parameters: it shows in training only.",
    "BLEU and core-years of the 100 bilingual baselines (Figure 6).",
)
