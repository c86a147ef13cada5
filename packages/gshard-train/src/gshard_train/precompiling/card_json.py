"""A cost card as JSON, for scripts: a format's name, its version, and the card's attributes.

`version` grows when an attribute goes or changes its meaning, not when one is added.
"""

import dataclasses
import json

from gshard_train.precompiling.card import CostCard

FORMAT = "gshard-train cost card"
VERSION = 1


def card_json(card: CostCard) -> str:
    """The card's attributes by name, indented; sizes are bytes, times seconds or days."""
    form = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(card)}
    return json.dumps(form, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
