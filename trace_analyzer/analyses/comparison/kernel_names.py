"""One spelling for the kernel names of torch.profiler and of Nsight Systems.

Both demangle, each in its own way: `{lambda(float)#1}` against `[lambda(float) (instance 1)]`,
`3ul` against `(unsigned long)3`, `float const*` against `const T1 *`. What is left is the function
with its template arguments, without argument lists, blanks and qualifiers.
"""

from __future__ import annotations

import re

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>")
_INSTANCE = re.compile(r"\s*\(instance (\d+)\)\]")
_CAST = re.compile(r"\([\w: ]+\)(?=-?\d)")
_SUFFIX = re.compile(r"(?<=\d)(?:ull|ul|ll|u|l)\b", re.IGNORECASE)
_PARENTHESES = re.compile(r"\([^()]*\)")
_QUALIFIERS = re.compile(r"\b(?:const|void|volatile|__restrict__)\b")
_TRUTH = (("true", "1"), ("false", "0"))


def canonical(name: str) -> str:
    """Return the name in the one spelling; names of no C++ function come back almost unchanged."""
    text = _ANONYMOUS.sub("@", name)
    text = _INSTANCE.sub(r"#\1}", text).replace("[lambda", "{lambda")
    text = _SUFFIX.sub("", _CAST.sub("", text))
    for word, digit in _TRUTH:
        text = re.sub(rf"\b{word}\b", digit, text)
    while True:
        shorter = _PARENTHESES.sub("", text)
        if shorter == text:
            break
        text = shorter
    return re.sub(r"\s+", "", _QUALIFIERS.sub("", text))
