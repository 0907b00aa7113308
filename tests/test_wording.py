"""Sizes and moments in words."""

import pytest

from torchmedic import wording
from torchmedic.model import Place


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1010 << 20, "1010 MiB"),
    (1023 << 30, "1023 GiB"), (5000 << 40, "5000 TiB"), (8181956608, "7.62 GiB"),
    (round(23.64 * 2**30), "23.64 GiB"), (388 << 20, "388 MiB"), (8 << 30, "8 GiB"),
    (round(5.4 * 2**30), "5.4 GiB"), (-1536, "-1.5 KiB"), (100 << 10, "100 KiB"),
])
def test_a_size_is_a_plain_number(count, text):
    assert wording.size(count) == text


@pytest.mark.parametrize(("place", "text"), [
    (Place(), "before the first batch"), (Place(phase="setup"), "before the first batch"),
    (Place(phase="data"), "before the first batch"),
    (Place(batch=2, phase="setup"), "in batch 2"),
    (Place(batch=2, phase="data"), "in batch 2, while loading the batch"),
    (Place(batch=2, epoch=3, phase="forward", module="fc"),
     "in batch 2 of epoch 3, in the forward pass (`fc`)"),
    (Place(phase="forward"), "before the first batch, in the forward pass"),
])
def test_a_moment_is_said_once(place, text):
    assert wording.moment(place) == text


def test_one_is_no_plural():
    assert [wording.plural(n, "batch") for n in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]
    assert [wording.plural(n, "time") for n in (1, 2)] == ["1 time", "2 times"]
