"""How evenly experts are loaded."""

import numpy as np
import pytest

from gshard_train.monitoring import expert_load

CHOICES_LE = np.array([[3.0, 0.0, 3.0], [1.0, 4.0, 4.0]])


def test_a_load_of_one_is_an_equal_share_of_its_layer():
    load_LE = expert_load.relative(CHOICES_LE)
    np.testing.assert_allclose(load_LE, [[1.5, 0.0, 1.5], [1 / 3, 4 / 3, 4 / 3]])
    assert expert_load.figures(load_LE) == pytest.approx(
        {"expert_load_max": 1.5, "expert_load_min": 0.0, "experts_without_load": 1 / 6}
    )


def test_a_layer_without_tokens_has_no_load():
    assert expert_load.relative(np.zeros((1, 4))).tolist() == [[0.0] * 4]


def test_the_picture_is_written_and_returned(tmp_path):
    pixels = expert_load.draw(tmp_path, CHOICES_LE, ["encoder 0", "decoder 0"], step=1200)
    assert (pixels.dtype, pixels.ndim, pixels.shape[2]) == (np.uint8, 3, 3)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 10
    assert [path.name for path in tmp_path.iterdir()] == ["expert_load.png"]
    assert (tmp_path / "expert_load.png").read_bytes().startswith(b"\x89PNG")
