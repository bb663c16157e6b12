"""The outline of an HTML page, by the standard library's parser, with what is wrong in its form."""

from __future__ import annotations

from html.parser import HTMLParser

EMPTY = {"meta", "link", "br", "img", "input", "hr"}
HEADINGS = ("h1", "h2", "h3", "h4")


class Outline(HTMLParser):
    """Elements, ids, headings, visible text and errors of nesting.

    Args:
        page: the whole page.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.errors: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.errors += [f"{tag} is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in HEADINGS:
            self.headings.append((int(tag[1]), ""))
        if tag == "script":
            self.scripts.append("")
        if tag in ("td", "th", "dd"):
            self.text += " "
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.errors.append(f"{tag} closed inside {self._open[-3:]}")
            return
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if "script" in self._open:
            self.scripts[-1] += data
        elif "style" not in self._open:
            self.text += data
            if self._open and self._open[-1] in HEADINGS:
                level, words = self.headings[-1]
                self.headings[-1] = (level, words + data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        return [attrs for name, attrs in self.elements if name == tag]

    def words(self) -> str:
        """The visible text with single spaces."""
        return " ".join(self.text.split())
