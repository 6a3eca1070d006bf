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


_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)::")
# A function whose namespaces have no template arguments: return type, namespaces, name, the rest.
_FUNCTION = re.compile(
    r"(?:(?:void|static|inline|__global__)\s+)*(?:[A-Za-z_]\w*::)*(?P<name>[A-Za-z_]\w*)(?P<rest>[<(].*)?"
)
# What kernels of one library all begin with says nothing about the kernel.
_LIBRARY = re.compile(r"^(?:(nvjet)_(?:sm\d+_)?tst_|(cudnn)_generated_fort_native_)")
_COMPARED = 20  # names that a name is told apart from
_HINT = 16  # characters of what tells two names apart
_COMMON_ENDINGS = re.compile(r"(?:_?(?:kernel|cuda|impl|functor|wrapper_t))+$", re.IGNORECASE)
_WORDLESS = frozenset({"unsigned", "const", "lambda", "void", "operator", "char", "bool", "array"})


def _arguments(rest: str) -> str | None:
    """Return what stands in the leading < >, or None where more than a signature follows it."""
    if not rest.startswith("<"):
        return ""
    depth = 0
    for position, character in enumerate(rest):
        if character == "<":
            depth += 1
        elif character == ">" and rest[position - 1] != "-":
            depth -= 1
            if not depth:
                return rest[1:position] if rest[position + 1 : position + 2] in {"", "("} else None
    return rest[1:]


def _bare(name: str) -> tuple[str, str]:
    """Return a C++ name without return type, namespaces and arguments, and its template arguments.

    A name that is no such signature (Triton, cuBLAS, cuDNN kernels) comes back as it is.
    """
    match = _FUNCTION.fullmatch(_ANONYMOUS.sub("", name).strip())
    if match is None:
        return name, ""
    if not match["rest"]:
        return _LIBRARY.sub(lambda found: f"{found[1] or found[2]} ", match["name"]), ""
    template = _arguments(match["rest"] or "")
    return (name, "") if template is None else (match["name"], template)


def _words(template: str) -> list[str]:
    """Return what may tell two instances apart: identifiers without namespaces, and numbers."""
    bare = re.sub(r"(?:\w+::)+", "", _ANONYMOUS.sub("", template))
    found = re.findall(r"[A-Za-z_]\w*|\d+", bare.replace("CUDAFunctor_", ""))
    told = [word for word in found if word not in _WORDLESS and not word.endswith("Metadata")]
    return [_COMMON_ENDINGS.sub("", word) or word for word in told]


def _shared(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _difference(name: str, others: list[str]) -> str:
    """Return the part of a name between what it shares with the others at its start and end."""
    near = others[:_COMPARED]
    first = min(_shared(name, other) for other in near)
    last = min(_shared(name[::-1], other[::-1]) for other in near)
    return name[first : max(len(name) - last, first)].strip("_")


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return, for every kernel name, a name of at most `LONGEST` characters.

    Return types, namespaces and argument lists go; template arguments stay only where two of the
    names would look alike, and then only the words that tell them apart: "vectorized_kernel ‹add›".
    Names that are still alike are numbered.
    """
    alike: dict[str, list[tuple[str, str, str]]] = {}
    for name in dict.fromkeys(names):
        base, template = _bare(name)
        alike.setdefault(cut_middle(base), []).append((name, base, template))
    shortened: dict[str, str] = {}
    taken: set[str] = set()
    for members in alike.values():
        common = set.intersection(*(set(_words(template)) for _, _, template in members))
        for name, base, template in members:
            hint = ""
            if len(members) > 1:
                hint = _hint(base, template, common, [m[1] for m in members if m[0] != name])
            candidate = cut_middle(base, LONGEST - len(hint)) + hint
            shortened[name] = _unique(candidate if candidate.strip() else "(no name)", taken)
    return {name: visible(text) for name, text in shortened.items()}


def _hint(base: str, template: str, common: set[str], others: list[str]) -> str:
    own = [word for word in dict.fromkeys(_words(template)) if word not in common]
    own = [word for word in own if not word.isdigit()] or own
    if not own:
        own = [word for word in [_difference(base, others)] if word]
    kept: list[str] = []
    for word in own:
        if kept and len(" ".join([*kept, word])) > _HINT:
            break
        kept.append(word)
    return f" ‹{cut_middle(' '.join(kept), _HINT)}›" if kept else ""


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
