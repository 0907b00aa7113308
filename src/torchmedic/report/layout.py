"""Wrapped lines with hanging indents, as wide as the terminal, coloured only on one."""

from __future__ import annotations

import io
import os
import re
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from torchmedic.report.escape import one_line, visible, write_encodable
from torchmedic.report.wrapping import breaks

WIDEST = 100
"""Longer lines are hard to read."""
NARROWEST = 24


class Page:
    """Collects lines; `deliver` writes them."""

    def __init__(self, stream: TextIO, width: int | None = None,
                 colour: bool | None = None) -> None:
        self.stream = stream
        self.width = max(NARROWEST, width or _width(stream))
        colour = coloured(stream) if colour is None else colour
        self._console = Console(
            file=io.StringIO(), width=self.width, highlight=False, markup=False, emoji=False,
            force_terminal=colour, no_color=not colour, legacy_windows=False,
            color_system="standard" if colour else None,
        )

    def blank(self) -> None:
        self._put(Text())

    def paragraph(self, head: str, text: str, *, indent: int = 0, hang: int | None = None,
                  style: str = "", head_style: str = "bold") -> None:
        """`head text`, wrapped; later lines begin at `hang` (below the text by default)."""
        if hang is None:
            hang = indent + cell_len(head)
        hang = min(hang, self.width // 3)
        lead = Text(" " * indent).append(head, head_style)
        for part in visible(text).split("\n"):
            lead = self._wrapped(lead, _styled(part, style), hang)

    def _wrapped(self, lead: Text, body: Text, hang: int) -> Text:
        """Puts one line of text and gives back the lead of the next."""
        offsets = breaks(body.plain, self.width - lead.cell_len, self.width - hang)
        for number, line in enumerate(body.divide(offsets)):
            if number:
                lead = Text(" " * hang)
                line = line[len(line.plain) - len(line.plain.lstrip()):]
            whole = lead.copy().append_text(line)
            whole.rstrip()
            self._put(whole)
        return Text(" " * hang)

    def unbroken(self, text: str) -> None:
        """One line, however narrow the terminal is."""
        self._put(Text(one_line(text)))

    def verbatim(self, text: str, indent: int, style: str = "") -> None:
        """A line to copy, however narrow the terminal is."""
        self._put(Text(" " * indent + one_line(text), style))

    def command(self, head: str, command: str, indent: int) -> None:
        """A command to copy: broken only between words, with the shell's `\\`."""
        lead, room = " " * indent + head, self.width - 2
        line, lines = lead, []
        for word in _words(one_line(command)):
            if line.strip() and line != lead and cell_len(line) + 1 + cell_len(word) > room:
                lines.append(line + " \\")
                line = " " * (min(cell_len(lead), self.width // 3) + 2) + word
            else:
                line += word if line == lead else f" {word}"
        for number, text in enumerate([*lines, line]):
            shown = Text(text, "cyan")
            if number == 0:
                shown.stylize("bold", 0, len(lead))
            self._put(shown)

    def source(self, number: int, text: str, indent: int) -> None:
        """A line of the user's source, cut where the terminal ends."""
        gutter = f"{' ' * indent}{number} | "
        room = max(8, self.width - cell_len(gutter))
        shown = one_line(text.strip())
        if cell_len(shown) > room:
            shown = set_cell_size(shown, room - 3).rstrip() + "..."
        self._put(Text(gutter, "dim").append(shown, "default"))

    def frame(self, number: int, lines: list[tuple[int, str]], mark: tuple[int, int] | None,
              indent: int) -> None:
        """Lines of the user's source with their numbers; `number` is the one that counts.

        mark: in it, the first character to underline and the one after the last. What is too
        long for the terminal is cut at its end, or at its beginning where the mark needs it.
        """
        wide = max(len(str(n)) for n, _ in lines)
        depth = min(len(text) - len(text.lstrip()) for _, text in lines if text.strip())
        room = max(8, self.width - indent - wide - 3)
        whole = next(text for at, text in lines if at == number)
        skipped = depth if mark is None else _skipped(whole, mark, depth, room)
        for at, text in lines:
            head = f"{' ' * indent}{at:>{wide}} | "
            shown = _cut(text.rstrip()[depth:], skipped - depth, room)
            if not shown and at != number:
                continue
            line = Text().append(head, "bold" if at == number else "dim")
            line.append(shown, "" if at == number else "dim")
            line.rstrip()
            self._put(line)
            if at == number and mark and mark[1] > mark[0] >= skipped:
                before = cell_len(visible(text[skipped:mark[0]]))
                size = min(cell_len(visible(text[mark[0]:mark[1]])), room - before)
                if size > 0:
                    line = Text().append(f"{' ' * (indent + wide)} | ", "dim")
                    self._put(line.append(" " * before + "^" * size, "bold red"))

    def deliver(self) -> None:
        file = self._console.file
        assert isinstance(file, io.StringIO)
        write_encodable(file.getvalue(), self.stream)

    def _put(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


def _skipped(text: str, mark: tuple[int, int], depth: int, room: int) -> int:
    """How many characters of a line are left out for its mark to be seen."""
    if cell_len(visible(text[depth:])) <= room:
        return depth
    at = max(depth, mark[1] - room)
    while at < mark[0] and cell_len(visible(text[at:mark[1]])) > room - 3:
        at += 1
    return at


def _cut(text: str, skipped: int, room: int) -> str:
    """What is seen of a line through a window as wide as the terminal."""
    shown = one_line(text[skipped:])
    if cell_len(shown) > room:
        shown = set_cell_size(shown, room - 3).rstrip() + "..."
    if not skipped or len(shown) <= 3:
        return shown
    return "..." + " " * (cell_len(shown[:3]) - 3) + shown[3:]


def _styled(text: str, style: str) -> Text:
    """Text with its code in backticks set apart."""
    shown = Text(text, style)
    for match in re.finditer(r"`[^`\n]+`", text):
        shown.stylize("cyan", match.start(), match.end())
    return shown


def _words(command: str) -> list[str]:
    """Words with their quotes, so that the parts can be joined by spaces again."""
    return re.findall(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"\\]|['\"\\])+", command)


def coloured(stream: TextIO) -> bool:
    """NO_COLOR wins over FORCE_COLOR; otherwise colour only where a person looks."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") not in (None, "", "0"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _width(stream: TextIO) -> int:
    if is_terminal(stream):
        try:
            columns = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        if columns:
            return min(columns, WIDEST)
    columns_set = os.environ.get("COLUMNS", "")
    return min(int(columns_set), WIDEST) if columns_set.isdecimal() and int(columns_set) else 80
