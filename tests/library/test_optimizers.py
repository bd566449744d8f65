"""Twenty steps of each optimizer of the library against PyTorch's, or against its paper's formula in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.library.running import Run, begun

torch = pytest.importorskip("torch")

STEPS = 20
RNG = np.random.default_rng(5)
DATA = {"x": RNG.normal(size=(16, 3)).astype(np.float32), "y": RNG.normal(size=(16, 2)).astype(np.float32)}
FIRST = {
    "net/hidden/w": RNG.normal(size=(3, 4)).astype(np.float32),
    "net/hidden/bias": RNG.normal(size=4).astype(np.float32),
    "net/out/w": RNG.normal(size=(4, 2)).astype(np.float32),
}
PROGRAM = """
(model net (x) (linear "out" (tanh (linear "hidden" x 4)) 2 :bias false))
(define (loss-of batch) (mean (square (- (net (:x batch)) (:y batch)))))
(objective (batch) (metric "loss" (loss-of batch)))
(evaluate plain (batch) (metric "held" (loss-of batch)))
(evaluate averaged (batch) (metric "held" (reading "ema" (loss-of batch))))
(run r :data points :batch 16 :shuffle off :steps 20 :optimizer OPTIMIZER EVALUATE)
"""


def run(folder: Path, optimizer: str, evaluate: str = "") -> Run:
    text = PROGRAM.replace("OPTIMIZER", optimizer).replace("EVALUATE", evaluate)
    return begun(folder, text, DATA, FIRST).to_the_end()


def loss(params: list[Any]) -> Any:
    w, bias, v = params
    x, y = torch.tensor(DATA["x"], dtype=torch.float64), torch.tensor(DATA["y"], dtype=torch.float64)
    return ((torch.tanh(x @ w + bias) @ v - y) ** 2).mean()


def torch_steps(
    make: Callable[[list[Any]], Any], clip: float | None = None, rates: list[float] | None = None
) -> Iterator[list[Any]]:
    """The parameters after each step of PyTorch's optimizer, in f64."""
    params = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in FIRST.values()]
    optimizer = make(params)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rates[step] if rates else group["lr"]
        optimizer.zero_grad()
        loss(params).backward()
        if clip is not None:
            norm = torch.nn.utils.clip_grad_norm_(params, clip)
            assert norm > clip, "a clip that never binds shows nothing"
        optimizer.step()
        yield [p.detach().numpy().copy() for p in params]


def assert_same(params: dict[str, Any], expected: list[Any]) -> None:
    for (name, first), x in zip(FIRST.items(), expected, strict=True):
        assert np.abs(x - first).max() > 1e-3, f"{name} has hardly moved"
        np.testing.assert_allclose(params[name], x, rtol=1e-5, atol=1e-6, err_msg=name)


OPTIMIZERS: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "sgd": ("sgd :lr 0.05", lambda p: torch.optim.SGD(p, lr=0.05)),
    "momentum": ("momentum :lr 0.05 :mu 0.8", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8)),
    "nesterov": (
        "momentum :lr 0.05 :nesterov true",
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    ),
    "adam": ("adam :lr 0.02", lambda p: torch.optim.Adam(p, lr=0.02)),
    "adam eps": (
        "adam :lr 0.02 :b1 0.8 :b2 0.9 :eps 0.1",
        lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.9), eps=0.1),
    ),
    "adam no mean": ("adam :lr 0.005 :b1 0.0 :b2 0.99", lambda p: torch.optim.Adam(p, lr=0.005, betas=(0.0, 0.99))),
    "adamw": ("adamw :lr 0.02", lambda p: torch.optim.AdamW(p, lr=0.02)),
    "adamw decay": ("adamw :lr 0.02 :decay 0.5", lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.5)),
    "rmsprop": ("rmsprop :lr 0.01", lambda p: torch.optim.RMSprop(p, lr=0.01)),
    "rmsprop b": (
        "rmsprop :lr 0.01 :b 0.9 :eps 1e-3",
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-3),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 0.02], ids=["free", "clipped"])
def test_twenty_steps_are_pytorchs(name: str, clip: float | None, tmp_path: Path) -> None:
    written, make = OPTIMIZERS[name]
    ours = run(tmp_path, f"({written})" if clip is None else f"({written} :clip {clip})")
    *_, expected = torch_steps(make, clip)
    if name == "sgd" and clip is not None:  # twenty short steps move it by 0.02 in all
        assert np.abs(ours.params["net/out/w"] - FIRST["net/out/w"]).max() > 1e-3
    assert_same(ours.params, expected)


def lion(decay: float, b1: float, b2: float, lr: float) -> list[Any]:
    """Program 1 of Chen et al. (2023), in f64."""
    params = [x.astype(np.float64) for x in FIRST.values()]
    means = [np.zeros_like(p) for p in params]
    for _ in range(STEPS):
        leaves = [torch.tensor(p, requires_grad=True) for p in params]
        gradients = torch.autograd.grad(loss(leaves), leaves)
        for i, g in enumerate([g.numpy() for g in gradients]):
            direction = np.sign(b1 * means[i] + (1 - b1) * g)
            params[i] = params[i] - lr * (direction + decay * params[i])
            means[i] = b2 * means[i] + (1 - b2) * g
    return params


def test_lion_is_its_papers(tmp_path: Path) -> None:
    assert_same(run(tmp_path, "(lion :lr 0.003)").params, lion(0.0, 0.9, 0.99, 0.003))
    other = run(tmp_path, "(lion :lr 0.003 :b1 0.8 :b2 0.9 :decay 0.5)")
    assert_same(other.params, lion(0.5, 0.8, 0.9, 0.003))


def test_a_rate_may_be_a_schedule(tmp_path: Path) -> None:
    rates = [0.05 * s / 5 if s < 5 else 0.01 + 0.02 * (1 + math.cos(math.pi * (s - 5) / 10)) for s in range(1, 16)]
    rates += [0.01] * 5
    ours = run(tmp_path, "(adamw :lr (warmup-cosine :peak 0.05 :warmup 5 :total 15 :end 0.01))")
    *_, expected = torch_steps(lambda p: torch.optim.AdamW(p, lr=1.0), rates=rates)
    assert_same(ours.params, expected)


def test_groups_have_their_own_optimizers_and_one_norm(tmp_path: Path) -> None:
    bias, rest = "(adamw :lr 0.05 :decay 0.0 :clip 0.02)", "(momentum :lr 0.5 :clip 0.02)"
    ours = run(tmp_path, f'[(group "bias" "*/bias" {bias}) (group "rest" "*" {rest})]')

    def make(params: list[Any]) -> Any:
        w, bias, v = params
        return Both(torch.optim.AdamW([bias], lr=0.05, weight_decay=0.0), torch.optim.SGD([w, v], lr=0.5, momentum=0.9))

    *_, expected = torch_steps(make, clip=0.02)
    assert_same(ours.params, expected)


class Both:
    """Two of PyTorch's optimizers as one."""

    def __init__(self, *optimizers: Any) -> None:
        self.optimizers = optimizers
        self.param_groups = [g for o in optimizers for g in o.param_groups]

    def zero_grad(self) -> None:
        for o in self.optimizers:
            o.zero_grad()

    def step(self) -> None:
        for o in self.optimizers:
            o.step()


@pytest.mark.parametrize("name", [*OPTIMIZERS, "lion"])
def test_the_average_is_kept_and_read(name: str, tmp_path: Path) -> None:
    written, make = OPTIMIZERS.get(name, ("lion :lr 0.003", None))
    evaluate = ":evaluate [(plain :data points :batch 8) (averaged :data points :batch 8)]"
    ours = run(tmp_path, f"({written} :ema 0.8)", evaluate)
    states = set(ours.optimizer)
    assert {f"ema/{p}" for p in FIRST} <= states
    assert len(states) == len(FIRST) * len({s.split("/")[0] for s in states})
    if make is not None:
        average = list(FIRST.values())
        for params in torch_steps(make):
            average = [0.8 * a + 0.2 * p for a, p in zip(average, params, strict=True)]
        for p, a in zip(FIRST, average, strict=True):
            np.testing.assert_allclose(ours.optimizer[f"ema/{p}"], a, rtol=1e-5, atol=1e-6)
    plain, averaged = [ours.points["held", p][-1] for p in ("plain", "averaged")]
    kept = [torch.tensor(ours.optimizer[f"ema/{p}"], dtype=torch.float64) for p in FIRST]
    assert averaged == pytest.approx(loss(kept).item(), rel=1e-5)
    last = [torch.tensor(ours.params[p], dtype=torch.float64) for p in FIRST]
    assert plain == pytest.approx(loss(last).item(), rel=1e-5)
    assert abs(plain - averaged) > 1e-4


def test_without_ema_no_average_is_kept(tmp_path: Path) -> None:
    assert run(tmp_path, "(sgd :lr 0.1)").optimizer == {}
    assert set(run(tmp_path, "(adamw :lr 0.1)").optimizer) == {f"{s}/{p}" for s in "mv" for p in FIRST}
