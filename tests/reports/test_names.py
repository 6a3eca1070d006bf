"""Names from traces: nothing invisible, nothing endless, nothing mistaken for another."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from trace_analyzer.reports.names import (
    LONGEST,
    code_spans,
    cut_middle,
    display_width,
    fit,
    lead,
    short_names,
    visible,
)

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 3ul> >(int, {})"
)


def test_active_characters_become_symbols() -> None:
    assert visible("a\x00b\x1b[31m\x7f") == "a␀b␛[31m␡"
    assert visible("x\u202egnp.exe") == "x⟦U+202E⟧gnp.exe"
    assert visible("a\u200bb\ufeff\u2066") == "a⟦U+200B⟧b⟦U+FEFF⟧⟦U+2066⟧"
    assert visible("\ud800") == "⟦U+D800⟧"
    assert visible("line\nbreak\t") == "line␊break␉"


@given(st.text())
def test_nothing_visible_acts(text: str) -> None:
    for character in visible(text):
        assert unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"}
        assert unicodedata.bidirectional(character) not in {
            "LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
        }  # fmt: skip


def test_ordinary_text_of_any_script_stays() -> None:
    for text in ("nvjet_tst", "חלום", "模型", "Größe", "🙂"):
        assert visible(text) == text


@given(st.text(min_size=1, max_size=200), st.integers(min_value=3, max_value=80))
def test_cuts_keep_both_ends(text: str, longest: int) -> None:
    cut = cut_middle(text, longest)
    assert len(cut) <= longest
    if len(text) <= longest:
        assert cut == text


@given(st.text(alphabet="ab漢字é\u0301 ", max_size=60), st.integers(min_value=3, max_value=40))
def test_fits_terminal_columns(text: str, width: int) -> None:
    assert display_width(fit(text, width)) <= width


def test_signatures_are_stripped() -> None:
    names = [
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*, long)",
        "void at::native::<unnamed>::cunn_SoftMaxBackward<(int)4, float>(T3 *, const T2 *)",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)",
        "Memcpy HtoD (Pinned -> Device)",
        "triton_poi_fused_add_0",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    ]
    assert list(short_names(names).values()) == [
        "cunn_SoftMaxForward",
        "cunn_SoftMaxBackward",
        "compute_dot_do_o_specialized",
        "Memcpy HtoD (Pinned -> Device)",
        "triton_poi_fused_add_0",
        "nvjet 256x128_64x…h_bz_coopA_NNT",
    ]


def test_template_arguments_stay_where_they_tell_names_apart() -> None:
    functors = ("at::native::CUDAFunctor_add<float>", "at::native::FillFunctor<float>")
    names = [ELEMENTWISE.format(functor, functor) for functor in functors]
    add, fill = short_names(names).values()
    assert add.endswith("‹add›")
    assert fill.endswith("‹Fill›")
    assert short_names(names[:1])[names[0]] == "vectorized_elementwise_kernel"


def test_lambdas_and_operators_do_not_confuse() -> None:
    name = (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
        "const::{lambda(float)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
    )
    assert short_names([name])[name] == "elementwise_kernel"


def test_names_that_differ_in_the_middle_are_told_apart() -> None:
    names = [f"{'a' * 40}{word}{'b' * 40}" for word in ("fprop", "bprop")]
    shorts = list(short_names(names).values())
    assert ["‹f›" in shorts[0], "‹b›" in shorts[1]] == [True, True]


def test_names_that_cannot_be_told_apart_are_numbered() -> None:
    names = ["void f<int>(a)", "void f<int>(b)"]
    assert list(short_names(names).values()) == ["f", "f #2"]


@given(st.lists(st.text(max_size=120), unique=True, max_size=12))
def test_short_names_are_short_and_distinct(names: list[str]) -> None:
    shorts = short_names(names)
    assert set(shorts) == set(names)
    assert len(set(shorts.values())) == len(names)
    for name, short in shorts.items():
        assert len(short) <= LONGEST or visible(name) != name


def test_a_name_of_5000_characters() -> None:
    name = "void " + "ns::" * 600 + "kernel<" + "A, " * 800 + ">(int)"
    assert short_names([name])[name] == "kernel"


def test_first_sentence_leads() -> None:
    assert lead("Not the network. It moves.") == ("Not the network.", "It moves.")
    assert lead("Not the network: it moves.") == ("Not the network:", "it moves.")
    assert lead("One sentence only.") == ("", "One sentence only.")
    assert lead("At 8.5 ms it moves. Then stops.")[0] == "At 8.5 ms it moves."


def test_backticks_mark_code() -> None:
    assert code_spans("set `A=1` now") == [(False, "set "), (True, "A=1"), (False, " now")]
    assert code_spans("an ` alone") == [(False, "an ` alone")]
