"""Tables at several widths, with wide characters."""

from torchmedic.tables import cells, table

ROWS = [("NAME", "KIND", "TEXT"),
        ("显存", "a\x1bb", "one two three four five six seven eight nine")]


def test_columns_line_up_in_cells():
    first, second = table(ROWS, 90).splitlines()
    assert first == "NAME  KIND    TEXT"
    assert second == "显存  a\\x1bb  one two three four five six seven eight nine"
    assert cells(second[:2]) == cells(first[:4]) == 4


def test_the_last_column_wraps_and_goes_below_where_room_is_short():
    assert table(ROWS, 50).splitlines()[1:] == [
        "显存  a\\x1bb  one two three four five six seven", "              eight nine"]
    assert table(ROWS, 40).splitlines()[2:] == [
        "显存  a\\x1bb", "    one two three four five six seven", "    eight nine"]
    assert table([], 80) == ""
