"""Sizes and moments in words."""

import pytest

from torchmedic import wording


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1010 << 20, "1010 MiB"),
    (1023 << 30, "1023 GiB"), (5000 << 40, "5000 TiB"), (8181956608, "7.62 GiB"),
])
def test_a_size_is_a_plain_number(count, text):
    assert wording.size(count) == text
