"""JSON, markdown and terminal: the same verdict, for programs, tickets and consoles."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from tests.reports import builder
from trace_analyzer.findings import json_schema
from trace_analyzer.reports import json as json_report
from trace_analyzer.reports import markdown, markdown_text, terminal
from trace_analyzer.reports.names import display_width

NAMES = sorted(builder.ALL)
VALID = [name for name in NAMES if name != "not_finite"]


@pytest.mark.parametrize("name", NAMES)
def test_json_is_the_same_every_time_and_fits_its_schema(name: str) -> None:
    report = builder.ALL[name]()
    text = json_report.render(report)
    assert text == json_report.render(builder.ALL[name]())
    assert text.endswith(b"}\n")
    assert b"NaN" not in text
    if name in VALID:
        jsonschema.validate(json.loads(text), json_schema())


@pytest.mark.parametrize("name", NAMES)
def test_json_inside_a_page_reads_back_and_cannot_end_its_element(name: str) -> None:
    report = builder.ALL[name]()
    inside = json_report.embedded(report)
    assert json.loads(inside) == json.loads(json_report.render(report))
    assert not re.search("[<>&\u2028\u2029\u202a-\u202e]", inside)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", NAMES)
def test_terminal_lines_fit(name: str, width: int) -> None:
    text = terminal.render(builder.ALL[name](), color=False, width=width)
    assert max(display_width(line) for line in text.splitlines()) <= width
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u200b]", text)
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", text)
    assert text.endswith("\n")


def test_terminal_says_the_verdict_first() -> None:
    lines = terminal.render(builder.slow_cpu_rank(), color=False, width=160).splitlines()
    assert lines[0].startswith("slow_cpu_rank · 2 × NVIDIA H200, 1 host")
    assert lines[2] == "▲ Cause found · confidence high"
    assert lines[3] == builder.slow_cpu_rank().verdict.headline
    text = "\n".join(lines)
    order = [
        "Do next:",
        "Data usable",
        "Findings",
        "Where a step goes",
        "NCCL (",
        "Largest kernels",
    ]
    places = [text.index(word) for word in order]
    assert places == sorted(places)


def test_terminal_tables_hold_the_numbers() -> None:
    text = terminal.render(builder.slow_cpu_rank(), color=False, width=80)
    row = next(line for line in text.splitlines() if line.strip().startswith("0  "))
    assert row.split() == ["0", "54.62", "27.49", "2.82", "23.90", "0.03", "0.38", "15.89"]
    assert re.search(r"AllReduce default_pg +131\.1 +1 +24 × 544 +502 +261", text)
    assert re.search(r"nvjet 256x128_64x….*matmul +2\.98 +33 +2 × 66 +384", text)


def test_terminal_bars_are_to_scale() -> None:
    text = terminal.render(builder.slow_cpu_rank(), color=False, width=80)
    bars = [line for line in text.splitlines() if line.startswith("rank ") and "█" in line]
    first, second = (re.sub(r"[^█▓▒▪·]", "", bar.rsplit("  ", 1)[0]) for bar in bars)
    room = 80 - len("rank 1 ▲") - 4 - 4
    assert len(second) == room
    assert abs(len(first) - room * 54.62 / 55.11) <= 1
    assert abs(first.count("█") - room * 27.49 / 55.11) <= 1
    assert abs(first.count("▒") - room * 23.9 / 55.11) <= 1


def test_terminal_colour_is_asked_for_and_changes_nothing_else() -> None:
    report = builder.slow_cpu_rank()
    plain = terminal.render(report, color=False, width=80)
    coloured = terminal.render(report, color=True, width=80)
    assert "\x1b" not in plain
    assert "\x1b[31" in coloured
    stripped = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_terminal_without_unicode() -> None:
    report = builder.slow_cpu_rank()
    terminal.render(report, color=False, width=80, plain=True).encode("ascii")


def test_markdown_holds_verdict_findings_warnings_and_partition() -> None:
    text = markdown.render(builder.slow_cpu_rank())
    lines = text.splitlines()
    assert (
        lines[2]
        == "### ▲ Rank 1's host is late. Fixing it gives back 8.5 of 34.3 ms a step (25 %)."
    )
    assert "**Not the network.** Transfer is 2.8 ms a step, at 288 GB/s." in lines
    assert (
        "**Do next:** Look at what rank 1 executes between fetching the batch and `model(x)`."
        in lines
    )
    assert (
        "| 1 | Rank 1's host is late (RANK001 late-rank-host) | 8.5 [7.9, 10.1] | rank 1 | high |"
        in lines
    )
    assert (
        "| 3 | Dtype and layout copies (GPU005 cast-or-layout-copies) | ≈ 0, not distinguishable | both ranks | low |"
        in lines
    )
    assert any(
        line.startswith("- **TRC003 profiler-perturbation** The profiler made") for line in lines
    )
    assert "| 1 ▲ | 55.11 | 23.65 | 1.96 | 0.00 | 0.08 | 29.42 | 0.84 |" in lines


def test_markdown_tables_are_rectangular() -> None:
    for name in NAMES:
        rows = [
            line
            for line in markdown.render(builder.ALL[name]()).splitlines()
            if line.startswith("|")
        ]
        blocks: list[set[int]] = []
        for row in rows:
            count = len(re.findall(r"(?<!\\)\|", row))
            if set(row) <= set("|-: "):
                blocks.append(set())
            if blocks:
                blocks[-1].add(count)
        assert len(rows) == 0 or blocks, name
        for block in blocks[-1:]:
            assert len(block) == 1, name


def test_markdown_of_hostile_text_does_nothing() -> None:
    report = builder.hostile()
    bad = "@team </script> #12 ![x](y) [a](b) | *b* _c_ ~d~"
    report = builder.change(report, verdict=builder.change(report.verdict, headline=bad))
    text = markdown.render(report)
    headline = text.splitlines()[2]
    assert headline == (
        r"### ▲ `@`team \</script\> `#`12 \!\[x\](y) \[a\](b) \| \*b\* \_c\_ `~`d\~"
    )
    assert "\u202e" not in text
    assert not re.search(r"(?<![\\`])<(?!\s)", _without_code(_without_our_tags(text)))


def _without_our_tags(text: str) -> str:
    return re.sub(r"^(?:</?details>|<summary>[^<]*</summary>)$", "", text, flags=re.MULTILINE)


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("see https://evil.example/?a=b&c|d", "see `https://evil.example/?a=b&c|d`"),
        ("www.evil.example, javascript:x", "`www.evil.example,` javascript:x"),
        ("a@b.example", "a`@`b.example"),
        ("fixes #12, GH-12, !3, $x$, %5, &7, o/r#9",
         "fixes `#`12, GH`-`12, `!`3, `$`x`$`, `%`5, `&`7, o/r`#`9"),
        ("ProfilerStep#N, 5 % of 3 & more", r"ProfilerStep\#N, 5 % of 3 &amp; more"),
        ("- item", r"\- item"),
        ("=====", r"\====="),
        ("---", r"\---"),
        ("12. twelve", r"12\. twelve"),
        ("12.5 ms", "12.5 ms"),
        ("-3 ms", "-3 ms"),
        ("> quote", r"\> quote"),
        ("``` x", "' x"),
        ("<!-- x --> &lt;b&gt;", r"\<\!-- x --\> &amp;lt;b&amp;gt;"),
        ("a\nb\r\tc", "a␊b␍␉c"),
        ("code `a|b<c>` stays", "code `a|b<c>` stays"),
    ],
)  # fmt: skip
def test_markdown_shows_text_as_it_is(text: str, written: str) -> None:
    assert markdown_text.escaped(text) == written


@pytest.mark.parametrize("name", NAMES)
def test_markdown_becomes_no_other_elements_than_ours(name: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    page = (
        markdown_it.MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(markdown.render(builder.ALL[name]()))
    )
    used = {found.lower() for found in re.findall(r"<([a-zA-Z!][^ >/]*)", page)}
    assert used <= {
        "p", "strong", "h3", "table", "thead", "tbody", "tr", "th", "td", "ul", "ol", "li", "code",
        "details", "summary",
    }  # fmt: skip
    assert page.count("<details>") == page.count("</details>")


def test_markdown_cells_cannot_end_their_cell() -> None:
    assert markdown_text.cell("a|b `c|d`") == "a¦b `c¦d`"
    assert markdown_text.code("k`|<T>") == "`k'¦<T>`"
    assert markdown_text.code(" ") == ""
    assert len(markdown_text.cell("x" * 5_000)) == 201


@pytest.mark.parametrize("name", NAMES)
def test_markdown_fits_into_a_comment_everywhere(name: str) -> None:
    text = markdown.render(builder.ALL[name]())
    assert len(text) <= 32_000  # Jira takes 32,767, the others more
    assert text.count("<details>") == text.count("</details>")
    assert len([line for line in text.splitlines() if line == "</details>"]) == text.count(
        "</details>"
    )
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", text)


def test_markdown_leaves_out_what_does_not_fit_and_says_so() -> None:
    report = builder.slow_cpu_rank()
    whole = markdown.render(report)
    assert "Left out" not in whole
    short = markdown.render(report, 4_000)
    assert len(short) <= 4_000
    assert short.splitlines()[:10] == whole.splitlines()[:10]
    note = next(line for line in short.splitlines() if line.startswith("Left out"))
    assert note.startswith("Left out to fit into a comment of 4,000 characters: ")
    assert "kernels" in note
    assert short.count("<details>") == short.count("</details>") < whole.count("<details>")
    assert short.splitlines()[-1] == whole.splitlines()[-1]


def test_markdown_is_cut_at_a_line_where_even_the_verdict_does_not_fit() -> None:
    text = markdown.render(builder.slow_cpu_rank(), 900)
    assert len(text) <= 900
    assert "characters: the rest" in text
    assert text.startswith("**slow")


def test_markdown_folds_the_proof_below_the_verdict() -> None:
    report = builder.slow_cpu_rank()
    text = markdown.render(report)
    above, _, below = text.partition("<details>")
    assert "Step by rank" in above
    summaries = re.findall(r"<summary>(.*)</summary>\n\n", below)
    assert summaries[0] == "Evidence of RANK001"
    assert "NCCL (grid = channels, block = threads a channel)" in summaries
    assert "Largest kernels on rank 1" in summaries
    # Markdown inside HTML is read as such only behind an empty line.
    assert not re.search(r"</summary>\n[^\n]|[^\n]\n</details>", text)


def test_terminal_without_unicode_is_ascii_for_every_report() -> None:
    for name in NAMES:
        if name not in {"hostile", "not_finite"}:
            terminal.render(builder.ALL[name](), color=False, width=80, plain=True).encode("ascii")


def test_markdown_of_many_ranks_names_the_telling_ones() -> None:
    text = markdown.render(builder.world(64))
    assert "| 3 ▲ |" in text
    assert "58 more ranks in the report." in text
