"""How text from traces is shown: nothing invisible, nothing endless.

Kernel, file, host and thread names come from other people's machines. Every character that would
act instead of being seen (controls, bidi marks, zero-width characters, lone surrogates) is shown
by a symbol; HTML escaping is done by the templates.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST = 32  # characters of a shortened name

# C0 and C1 controls, and the characters of Unicode's Cf, Zl, Zp, Co and Cs that steer rendering.
_ACTIVE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if code == 0x202F:  # narrow no-break space: seen as a space, steers nothing
        return " "
    return f"⟦U+{code:04X}⟧"


def visible(text: str) -> str:
    """Return the text with every control, bidi and zero-width character shown as a symbol."""
    return _ACTIVE.sub(_symbol, text)


def cut_middle(text: str, longest: int = LONGEST) -> str:
    """Return the text in at most `longest` characters, with "…" where its middle was."""
    if len(text) <= longest:
        return text
    head = (longest - 1) * 4 // 7
    return f"{text[:head].rstrip()}…{text[len(text) - (longest - 1 - head) :].lstrip()}"


def display_width(text: str) -> int:
    """Return the columns that the text takes on a terminal."""
    width = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return width


def fit(text: str, width: int) -> str:
    """Return the text cut in the middle to at most `width` terminal columns."""
    shown = cut_middle(text, width)
    while display_width(shown) > width:
        shown = cut_middle(shown, len(shown) - 1)
    return shown


_BRACKETS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_OPERATOR = re.compile(r"operator\s*(?:<<=?|>>=?|<=>|<=|>=|->\*?|<|>|\(\))")


def _split_outside(text: str, separator: str) -> list[str]:
    """Split at `separator` where it stands outside all brackets."""
    parts: list[str] = []
    depth = first = position = 0
    while position < len(text):
        character = text[position]
        if character in "<([{":
            depth += 1
        elif character in ">)]}" and depth and not text.startswith("->", position - 1):
            depth -= 1
        elif not depth and text.startswith(separator, position):
            parts.append(text[first:position])
            position += len(separator)
            first = position
            continue
        position += 1
    parts.append(text[first:])
    return parts


def _matching(text: str, start: int) -> int:
    """Return the position after the bracket that closes `text[start]`, or the text's length."""
    closing = _BRACKETS[text[start]]
    depth = 0
    for position in range(start, len(text)):
        if text[position] == text[start]:
            depth += 1
        elif text[position] == closing:
            depth -= 1
            if not depth:
                return position + 1
    return len(text)


def _bare(name: str) -> tuple[str, str]:
    """Return a C++ name without return type, namespaces and arguments, and its template arguments.

    A name that is no C++ signature (Triton, cuBLAS, cuDNN kernels) comes back as it is.
    """
    text = name.replace("(anonymous namespace)::", "").strip()
    if not re.match(r"[A-Za-z_~]", text) or _OPERATOR.search(text):
        return name, ""
    words = _split_outside(text, " ")
    if len(words) > 1 and "(" not in words[0]:
        text = " ".join(words[1:]) if words[0] in {"void", "static", "inline"} else text
    last = _split_outside(text, "::")[-1] if "::" in text else text
    match = re.match(r"[A-Za-z_~][\w~$]*", last)
    if match is None:
        return name, ""
    rest = last[match.end() :]
    if rest and rest[0] not in "<([":
        return name, ""
    template = rest[1 : _matching(rest, 0) - 1] if rest.startswith("<") else ""
    return match.group(), template


def _words(template: str) -> list[str]:
    """Return what may tell two instances apart: identifiers without namespaces, and numbers."""
    bare = re.sub(r"(?:\w+::)+", "", template.replace("(anonymous namespace)::", ""))
    found = re.findall(r"[A-Za-z_]\w*|\d+", bare.replace("CUDAFunctor_", ""))
    return [word for word in found if word not in {"unsigned", "const", "lambda", "void"}]


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return, for every kernel name, a name of at most `LONGEST` characters.

    Return types, namespaces and argument lists go; template arguments stay only where two of the
    names would look alike, and then only the words that tell them apart: "vectorized_kernel ‹add›".
    Names that are still alike are numbered.
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for name in dict.fromkeys(names):
        base, template = _bare(name)
        alike.setdefault(cut_middle(base), []).append((name, template))
    shortened: dict[str, str] = {}
    taken: set[str] = set()
    for base, members in alike.items():
        common = set.intersection(*(set(_words(template)) for _, template in members))
        for name, template in members:
            own = [word for word in dict.fromkeys(_words(template)) if word not in common]
            own = [word for word in own if not word.isdigit()] or own
            hint = f" ‹{cut_middle(' '.join(own), 14)}›" if own and len(members) > 1 else ""
            candidate = cut_middle(base, LONGEST - len(hint)) + hint
            shortened[name] = _unique(candidate, taken)
    return {name: visible(text) for name, text in shortened.items()}


def _unique(candidate: str, taken: set[str]) -> str:
    unique, number = candidate, 1
    while unique in taken:
        number += 1
        mark = f" #{number}"
        unique = cut_middle(candidate, LONGEST - len(mark)) + mark
    taken.add(unique)
    return unique


def lead(text: str, longest_words: int = 12) -> tuple[str, str]:
    """Split prose into its first sentence and the rest; the first is empty where it is too long.

    "Not the network. Transfer is 2.8 ms." → ("Not the network.", "Transfer is 2.8 ms.").
    """
    match = re.match(r"(.+?[.:!?])\s+(?=\S)", text)
    if match is None or len(match.group(1).split()) > longest_words:
        return "", text
    return match.group(1), text[match.end() :]


def code_spans(text: str) -> Sequence[tuple[bool, str]]:
    """Split prose at backticks into (is code, text) parts; an unpaired backtick stays text."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = [parts[-2] + "`" + parts[-1]]
    return [(bool(index % 2), part) for index, part in enumerate(parts) if part]
