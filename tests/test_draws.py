"""Draws: no reporting form moves those that the program is made of; each place, step and microbatch has its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest

from sxi.backends import Array, open_backend
from sxi.program import load_source
from sxi.random import Draws
from sxi.ranks import Solo
from sxi.run import Report, Runner
from sxi.source import Source
from sxi.stages import check_run

# Draws in every context; the letters in angles are where a form may be added.
PROGRAM = """
(define (noise shape) <D> (* 0.1 (normal shape)))
(initializer own (shape) (uniform shape))
(generator made (n) <G> {:x (normal [n 2])})
(prepare (batch) <P> (with batch :x (+ (:x batch) <WRAP (normal [2 2])>)))
(model net (x)
  <M>
  (let ((w (param "w" [2 3] :init glorot)) (b (param "b" [3] :init own)))
    <L>
    (dropout <WRAP (+ (@ x w) b (noise [2 3]))> 0.25)))
(optimizer jittered (p g) <O> (update (- p (* 0.1 (+ g (* 0.01 <WRAP (normal (shape p))>))))))
(objective (batch)
  <B>
  (fold (loss (mean (square (net (:x batch))))) (i (range 3))
    <F>
    (+ loss (* 0.1 (mean (square (- (net (:x batch)) <WRAP (noise [2 3])>)))))))
(evaluate held (batch) (net (:x batch)) (metric "held" (mean (:x batch))))
(run r :data made :steps 3 :batch 4 :microbatches 2 :optimizer (jittered) <RUN>)
"""
HOLES = ["D", "P", "M", "L", "O", "B", "F"]


def runner_of(text: str, seed: int = 0) -> Runner:
    """A run that has begun."""
    loaded = load_source(Source("draws.sx", text))
    assert not loaded.errors, loaded.errors
    host = open_backend("cpu")
    made = Runner(check_run(loaded, host, {}, {"seed": seed} if seed else {}), host, host)
    made.begin()
    return made


def reports_of(made: Runner) -> list[Report]:
    """Every report of the run, none of which may fail; a step's comes once."""
    found: list[Report] = []
    for report in made.reports():
        assert report.failure is None, report.failure
        if not found or found[-1] is not report:
            found.append(report)
    return found


def program_with(wrap: str = "{}", run: str = "", **holes: str) -> str:
    """The program with forms in its holes, and what it draws wrapped."""
    text = re.sub(r"<WRAP (.*)>", lambda m: wrap.format(m[1]), PROGRAM)
    return re.sub(r"<([A-Z]+)>", lambda m: run if m[1] == "RUN" else holes.get(m[1], ""), text)


def bits_of(text: str) -> dict[str, bytes]:
    """The bytes of what a run ends with."""
    made = runner_of(text)
    reports_of(made)
    return {name: x.tobytes() for name, x in made.state.to_host(made.backend).items()}


@pytest.fixture(scope="module")
def plain() -> dict[str, bytes]:
    return bits_of(program_with())


# What is added

GUARD = '(guard "g" (count-where (> (normal [4]) 100.0)))'
CALL = '(guard "g" (count-where (> (noise [4]) 100.0)))'
ADDED = {
    "a guard that draws": GUARD,
    "two of one name": GUARD + GUARD,
    "other draws": '(guard "g" (sum (* 0 (integers [3] :high 9)))) (guard "h" (* 0.0 (sum (uniform [2]))))',
    "one that calls what draws": CALL,
    "assert-finite": '(assert-finite "a" (normal [4]))',
    "a metric": '(metric "m" (mean (normal [4])))',
    "a metric with bounds": '(metric "m" (mean (normal [4])) :below 1e3 :above -1e3)',
    "a diagnostic that is not selected": '(diagnostic "d" (mean (normal [4])))',
    "a diagnostic of sampled steps": '(diagnostic "seen" (mean (normal [4])) :below 1e3)',
    "a fold in it": '(guard "g" (* 0.0 (fold (s 0.0) (i (range 2)) (+ s (sum (normal [2]))))))',
    "a map in it": '(guard "g" (* 0 (count (map (lambda (i) (normal [2])) (range 2)))))',
    "a let in it": '(guard "g" (let ((z (normal [3]))) (count-where (> z 100.0))))',
    "one within another": f'(metric "m" (+ 1.0 {GUARD}))',
    "in when": f"(when true {GUARD})",
    "in if": f"(if true {GUARD} {CALL})",
    "in cond": f"(cond (false 0) (else {GUARD}))",
    "in begin": f"(begin {GUARD} {CALL})",
    "in let": f"(let ((z 1.0)) {GUARD})",
    "in regions": f'(frozen (bf16 (scope "s" {GUARD})))',
    "in when in let": f"(let ((z 1.0)) (when true (begin 0 {GUARD})))",
}  # fmt: skip


@pytest.mark.parametrize("added", ADDED)
def test_what_reports_and_is_dropped_changes_no_bit(plain: dict[str, bytes], added: str) -> None:
    everywhere = {hole: ADDED[added] for hole in HOLES if hole != "D" or "noise" not in ADDED[added]}
    everywhere["B"] += '(diagnostic "seen-always" 0.0)'  # the glob matches something, whatever is added
    assert bits_of(program_with(run=':diagnostics ["seen*"] :sample-every 2', **everywhere)) == plain


@pytest.mark.parametrize("hole", HOLES)
def test_one_at_a_time_changes_no_bit(plain: dict[str, bytes], hole: str) -> None:
    assert bits_of(program_with(**{hole: GUARD + ADDED["assert-finite"]})) == plain


def test_a_diagnostic_in_a_generator_changes_no_bit(plain: dict[str, bytes]) -> None:
    assert bits_of(program_with(G='(diagnostic "d" (mean (normal [4])) :below 0.0)')) == plain


def test_a_draw_that_is_used_does_change_them(plain: dict[str, bytes]) -> None:
    # the same forms where they are part of the program: what is compared above can tell
    changed = [
        bits_of(program_with(P="(normal [2 2])")),
        bits_of(program_with(B="(noise [2])", M="(noise [2])")),
        bits_of(program_with(O="(normal [1])")),
        bits_of(program_with().replace("(normal [n 2])", "(+ 1e-3 (normal [n 2]))")),
    ]
    assert all(bits != plain for bits in changed)


# What is wrapped, tapped, sampled


@pytest.mark.parametrize(
    "wrap",
    [
        '(assert-finite "a" {})',
        '(assert-finite "a" (assert-finite "b" {} :k 1))',
        '(begin (guard "g" (count-where (> (normal [5]) 100.0))) (assert-finite "a" {}))',
        '(let ((z {})) (metric "m" (mean z) :below 1e9) z)',
        '(let ((z {})) (diagnostic "seen" (mean z) :below 1e9) (diagnostic "unseen" (max z)) z)',
        '(+ {} (* 0.0 (guard "g" (* 0 (dim (zeros [3]) 0)))))',
    ],
)
def test_wrapping_what_draws_changes_no_bit(plain: dict[str, bytes], wrap: str) -> None:
    run = ':diagnostics ["seen"] :sample-every 2' if '"seen"' in wrap else ""
    assert bits_of(program_with(wrap, run)) == plain


@pytest.mark.parametrize(
    "run",
    ["", ':diagnostics ["look"] :sample-every 1', ':diagnostics ["*"] :sample-every 2', ':diagnostics ["l*"]'],
)
def test_what_is_selected_and_what_is_sampled_changes_no_bit(plain: dict[str, bytes], run: str) -> None:
    tap = """(let ((w (tap-gradient (param "net/w") (lambda (g)
               (diagnostic "look-tap" (+ (norm g) (norm (normal [3])) (norm (noise [3]))))))))
      (diagnostic "look" (mean (normal [4])))
      (diagnostic "look-too" (mean (noise [4]))))"""
    assert bits_of(program_with(run=run, L=tap.replace('(param "net/w")', "w"))) == plain


def test_a_tap_that_draws_changes_no_bit(plain: dict[str, bytes]) -> None:
    wrap = """(tap-gradient {} (lambda (g) (diagnostic "seen" (+ (norm g) (norm (normal [3])) (norm (noise [3]))))))"""
    assert bits_of(program_with(wrap, ':diagnostics ["seen"] :sample-every 1')) == plain


def test_passes_change_no_bit(plain: dict[str, bytes]) -> None:
    assert bits_of(program_with(run=":evaluate [(held :data made :examples 4 :batch 2 :every 1)]")) == plain


def test_a_report_of_its_own_series_does_not_move_another_reports_draws() -> None:
    # two dropped forms that draw: removing either, or giving one a bound, leaves what the other drew
    both = ['(metric "a" (mean (normal [2])) :k 1 {})', '(metric "a" (mean (normal [2])) :k 2)']
    texts = [both[0].format("") + both[1], both[0].format(""), both[1], both[0].format(":below 1e9") + both[1]]
    found = []
    for text in texts:
        values: dict[Any, list[float]] = {}
        for report in reports_of(runner_of(program_with(B=text))):
            for p in report.points:
                if p.label.kind == "metric":
                    values.setdefault(p.label.meta["k"], []).append(p.value)
        found.append(values)
    assert found[0] == {**found[1], **found[2]} == found[3]
    assert found[0][1] != found[0][2]


# What tells draws apart

APART = """
(define (one) (sum (normal [2])))
(define (two) [(one) (one)])
(generator made (n) {:x (+ (sum (normal [2])) (zeros [n]))})
(optimizer own (p g) (metric "optimizer" (sum (normal [2])) :k 0) (update (- p g)))
(prepare (batch) (metric "prepare" (sum (normal [2]))) batch)
(model net (x) (metric "model" (sum (normal [2])) :k x) (* x (param "w" [] :init zeros-init)))
(objective (batch)
  (metric "generator" (mean (:x batch)) :reduce :last)
  (metric "first" (begin (sum (normal [2]))) :reduce :last)
  (let ((a (sum (normal [2]))) (b (sum (normal [2]))) (u (sum (uniform [2]))) (c (one)) (d (one))
        ((e f) (two)) ((g h) (two))
        (turns (map (lambda (i) (sum (normal [2]))) (range 3)))
        (folded (fold (found []) (i (range 3)) (append found [(sum (normal [2])) (one)])))
        (nested (fold (found []) (i (range 2)) (append found (fold (f []) (j (range 2)) (append f [(one)])))))
        (all (append [a b u c d e f g h] turns folded nested)))
    (map (lambda (i) (metric "place" (nth all i) :i i :reduce :last)) (range (count all)))
    (map (lambda (i) (metric "sum" (nth all i) :i i :reduce :sum)) (range (count all)))
    (+ (net 0.0) (net 1.0) (* 0.0 (sum (param "v" [2] :init zeros-init))))))
(evaluate held (batch)
  (metric "seen" (mean (:x batch)) :reduce :last)
  (metric "seen-sum" (mean (:x batch)) :reduce :sum)
  (metric "pass" (sum (normal [2])) :reduce :last))
(run r :data made :steps 4 :batch 2 :microbatches 2 :optimizer [(group "a" "net/w" (own)) (group "b" "v" (own))]
  :evaluate [(held :data made :examples 4 :batch 2 :every 1)])
"""


def values_of(made: Runner) -> dict[tuple[str, str, int], float]:
    """(series, metadata, step) -> its value."""
    return {
        (p.label.name, repr(sorted(p.label.meta.items())), report.step): p.value
        for report in reports_of(made)
        for p in report.points
    }


def test_each_place_each_turn_each_call_and_each_step_draws_its_own() -> None:
    found = values_of(runner_of(APART))
    own = {k: v for k, v in found.items() if k[0] not in ("seen", "seen-sum", "sum")}
    # 9 alone, 3 of a map, 6 of a fold, 4 of nested folds; 8 others, the net's two, the optimizer's two
    assert len({k for k in own if k[2] == 1}) == 22 + 3 + 2 + 2 + 1
    clashes = [(a, b) for (a, x), (b, y) in combinations(own.items(), 2) if x == y]
    assert not clashes
    # another microbatch draws another: a sum over both is not twice the last
    for (name, meta, step), value in found.items():
        if name == "place":
            other = found["sum", meta, step] - value
            assert abs(other - value) > 1e-3


def test_a_seed_changes_every_draw_and_nothing_else_does() -> None:
    first, again, other = [values_of(runner_of(APART, seed=s)) for s in (0, 0, 1)]
    assert first == again
    assert first.keys() == other.keys()
    assert all(first[k] != other[k] for k in first)


def test_the_same_names_draw_the_same_wherever_the_text_stands() -> None:
    moved = "; a comment\n\n" + APART.replace("(objective (batch)", "(define unused 7)\n\n(objective   (batch)\n")
    assert values_of(runner_of(moved)) == values_of(runner_of(APART))


def test_a_generators_pass_sees_the_same_examples_each_time() -> None:
    found = values_of(runner_of(APART))
    for name in ("seen", "seen-sum"):
        assert len({v for (n, _, _), v in found.items() if n == name}) == 1
    # batches differ, and what the evaluation itself draws differs from step to step
    seen, both = [next(v for (n, _, s), v in found.items() if (n, s) == (name, 1)) for name in ("seen", "seen-sum")]
    assert both != 2 * seen
    assert len({v for (n, _, _), v in found.items() if n == "pass"}) == 4
    assert seen not in {v for (n, _, _), v in found.items() if n == "generator"}


def test_an_initializer_draws_by_the_seed_and_the_parameters_name() -> None:
    text = """(generator made (n) {{:x (ones [n])}})
    (objective (batch) (+ {}))
    (run r :data made :steps 1 :batch 1 :optimizer (sgd :lr 0.0))"""
    w, v = ['(sum (param "w" [3] :init (normal-init)))', '(sum (param "v" [3] :init (normal-init)))']
    first, swapped, alone = [
        {k: x.tobytes() for k, x in runner_of(text.format(body)).state.current.params.items()}
        for body in (f"{w} {v}", f"0.0 {v} (* 2.0 {w})", f"{w} 0.0")
    ]
    assert first == swapped
    assert alone["w"] == first["w"] != first["v"]


# Ranks


@dataclass
class OneOf(Solo):
    """One of several processes, alone: its microbatches and batches, nothing reduced."""

    rank: int = 0
    size: int = 2

    def microbatches(self, m: int) -> range:
        share = m // self.size
        return range(self.rank * share, (self.rank + 1) * share)

    def batches(self, n: int) -> range:
        return range(self.rank, n, self.size)


def test_two_microbatches_draw_what_the_file_says_whatever_the_ranks() -> None:
    def drawn(ranks: Any, step: int) -> list[tuple[int, int, str, bytes]]:
        made = runner_of(program_with(run=":evaluate [(held :data made :examples 4 :batch 2)]"))
        made.ranks = ranks
        seen: list[tuple[int, int, str, bytes]] = []

        class Noted(Draws):
            def words(self, place: str, n: int) -> Array:
                found = super().words(place, n)
                seen.append((self.step, self.microbatch, place, found.tobytes()))
                return found

        made.draws = Noted(made.run.seed, made.backend.asarray)
        plan = made.step_plan(step)
        made._microbatches(plan, made._cleared(plan), step)
        made.take_pass(made.compiled.passes[0][False])
        return seen

    for step in (1, 5):
        alone = drawn(Solo(), step)
        ranks = [drawn(OneOf(rank), step) for rank in (0, 1)]
        assert sorted(ranks[0] + ranks[1]) == sorted(alone)
        assert ranks[0]
        assert not set(ranks[0]) & set(ranks[1])
        assert len({bits for *_, bits in alone}) == len(alone)
