"""Fetching a run from a URL that fsspec knows (s3://, gs://, https://, …)."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers.archives import Budget, Limits

_URL = re.compile(r"^[a-z][a-z0-9+.-]+(://|::)", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@]*@")
_QUERY = re.compile(r"\?.*$")
_COPY_BYTES = 1 << 20
_WEB = ("http", "https")


def is_url(target: str) -> bool:
    """Tell whether a target is a URL rather than a path."""
    return _URL.match(target) is not None


def without_credentials(url: str) -> str:
    """Return the URL without user information and query: both may hold secrets."""
    return _QUERY.sub("", _USER_INFO.sub("", url))


def local_path(url: str) -> Path | None:
    """Return the path of a file:// or local:// URL, None for any other."""
    for prefix in ("file://", "local://"):
        if url.startswith(prefix):
            return Path(url[len(prefix) :])
    return None


def fetch(url: str, into: Path, *, limits: Limits | None = None) -> Path:
    """Copy what `url` names into the folder `into`; return the copied file, or `into` for a folder.

    Raises `UnreadableInputError` with one line for every failure, credentials left out.
    """
    shown = without_credentials(url)
    budget = Budget(shown, None, into, limits or Limits())
    try:
        return _fetch(url, into, budget, shown)
    except UnreadableInputError:
        raise
    except ImportError as error:
        raise UnreadableInputError(
            shown, f"this kind of URL needs another package ({one_line(error, url)})", "install it"
        ) from error
    except Exception as error:  # storage back ends raise types of their own
        raise UnreadableInputError(
            shown,
            f"cannot be fetched: {one_line(error, url)}",
            "check the URL and your access rights",
        ) from error


def _fetch(url: str, into: Path, budget: Budget, shown: str) -> Path:
    import fsspec

    system, base = fsspec.core.url_to_fs(url)
    # A web server has no folders: what lists links is still a page.
    if _protocols(system) & set(_WEB) or system.isfile(base):
        target = into / (PurePosixPath(without_credentials(base)).name or "download")
        budget.add_member()
        _copy(system, base, target, budget)
        return target
    found: dict[str, dict[str, Any]] = system.find(base, detail=True)
    if not found:
        raise UnreadableInputError(shown, "no such file or folder", "check the URL")
    root = system._strip_protocol(base).rstrip("/")  # noqa: SLF001 (fsspec's own way to normalise)
    for name in sorted(found):
        budget.add_member()
        relative = PurePosixPath(name.removeprefix(root).lstrip("/"))
        if ".." in relative.parts or relative.is_absolute() or not relative.parts:
            raise UnreadableInputError(shown, f"holds a name that leaves its folder: {name!r}")
        target = into.joinpath(*relative.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(system, name, target, budget)
    return into


def _protocols(system: Any) -> set[str]:  # noqa: ANN401 (fsspec has no types)
    named = system.protocol
    return {named} if isinstance(named, str) else set(named)


def _copy(system: Any, name: str, target: Path, budget: Budget) -> None:  # noqa: ANN401
    with system.open(name, "rb") as source, target.open("wb") as sink:
        while chunk := source.read(_COPY_BYTES):
            budget.add_bytes(len(chunk))
            sink.write(chunk)


def one_line(error: Exception, url: str = "") -> str:
    """Return what an error says in one line of at most 200 characters, without credentials.

    What looks like them goes, and what stands as user information or query in `url` wherever it is.
    """
    text = " ".join(str(error).split())
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "…")
    text = _QUERY.sub("", _USER_INFO.sub("", text))
    return text[:200] or type(error).__name__


def _secrets(url: str) -> set[str]:
    found = set()
    for match in (_USER_INFO.search(url), _QUERY.search(url)):
        if match is not None:
            whole = match.group().strip("?@")
            found |= {whole, *re.split(r"[:&=]", whole)}
    return {secret for secret in found if len(secret) > 3}
