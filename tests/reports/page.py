"""A parsed page, for asserting what it says and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        parts = [c if isinstance(c, str) else c.text for c in self.children if not is_code(c)]
        return " ".join(" ".join(parts).split())

    @property
    def raw(self) -> str:
        return "".join(c if isinstance(c, str) else c.raw for c in self.children)

    def all(self, tag: str = "", cls: str = "", **attributes: str) -> list[Node]:
        found = []
        for child in self.children:
            if isinstance(child, str):
                continue
            wanted = (not tag or child.tag == tag) and (
                not cls or cls in child.attributes.get("class", "").split()
            )
            if wanted and all(child.attributes.get(k) == v for k, v in attributes.items()):
                found.append(child)
            found += child.all(tag, cls, **attributes)
        return found

    def one(self, tag: str = "", cls: str = "", **attributes: str) -> Node:
        found = self.all(tag, cls, **attributes)
        assert len(found) == 1, f"{len(found)} × {tag} {cls} {attributes}"
        return found[0]

    def first(self, tag: str = "", cls: str = "") -> Node:
        return self.all(tag, cls)[0]


def is_code(node: Node | str) -> bool:
    return not isinstance(node, str) and node.tag in {"script", "style"}


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {key: value or "" for key, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(text: str) -> Node:
    """Return the tree of a page; every element must be closed in its place."""
    builder = _Builder()
    builder.feed(text)
    builder.close()
    assert builder.open == [builder.root], "an element is not closed"
    return builder.root
