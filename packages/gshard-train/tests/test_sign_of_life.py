"""A word from what takes long."""

import logging
import time

from gshard_train.monitoring import sign_of_life


def test_what_takes_long_is_told_until_it_ends(caplog):
    caplog.set_level(logging.INFO)
    with sign_of_life.told("compiling", every_seconds=0.01):
        while not caplog.messages:
            time.sleep(0.01)
    assert caplog.messages[0].startswith("Still compiling, for ")
    with sign_of_life.told("saving", every_seconds=60.0):
        pass
    assert not [text for text in caplog.messages if "saving" in text]
