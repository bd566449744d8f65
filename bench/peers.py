"""The tutorials' models written in PyTorch, eager: the same shapes, first values, optimizer, microbatches and guards.

A guard is a count there too; all of a step's counts and its loss come to the host in one read.  How much
of what the interpreter tests a peer tests as well is its `Tests`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FirstValues = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tests:
    """What a peer counts in a step.

    written:  the guards that stand in the program
    finite:   loss, gradients, new parameters and new states, as the finite guard does (without its way back)
    """

    written: bool = True
    finite: bool = False


class Violated(Exception):
    """A count that is not zero."""


class Peer:
    """One run of a model: `step` takes the next one and gives its loss."""

    def __init__(self, torch: Any, tests: Tests) -> None:
        self.torch, self.tests = torch, tests
        self.done = 0
        self._counts: list[Any] = []

    def count_not_finite(self, x: Any) -> None:
        """Count the elements of `x` that are NaN or infinite."""
        self._counts.append((~self.torch.isfinite(x.detach())).sum())

    def count(self, mask: Any) -> None:
        """Count what is true."""
        self._counts.append(mask.detach().sum())

    def read(self, loss: Any) -> float:
        """The loss; raises Violated where a count is not zero.  The step's one read."""
        own = loss.detach().double()
        if not self._counts:
            return float(own.item())
        value, *counts = self.torch.stack([own, *[c.double() for c in self._counts]]).tolist()
        self._counts.clear()
        if any(counts):
            raise Violated(str(counts))
        return float(value)


class Rows:
    """Which rows each step takes: a permutation an epoch, one laid after the other."""

    def __init__(self, torch: Any, rows: Any, batch: int) -> None:
        self._torch, self._rows, self._batch = torch, torch.as_tensor(rows), batch
        self._left = self._rows[:0]

    def __call__(self, step: int) -> Any:  # noqa: ARG002 - another way of taking rows goes by the step's number
        while len(self._left) < self._batch:
            order = self._torch.randperm(len(self._rows))
            self._left = self._torch.cat([self._left, self._rows[order]])
        taken, self._left = self._left[: self._batch], self._left[self._batch :]
        return taken


def warmup_cosine(peak: float, warmup: int, total: int, step: int) -> float:
    """The schedule of the same name in the library, in host numbers."""
    if step < warmup:
        return peak * step / warmup
    part = min(max((step - warmup) / (total - warmup), 0.0), 1.0)
    return 0.5 * peak * (1.0 + math.cos(math.pi * part))


def constant(rate: float) -> Callable[[int], float]:
    """The schedule that is always `rate`."""
    return lambda step: rate  # noqa: ARG005 - a schedule is called with the step


class Mlp(Peer):
    """Layers with relu between, cross-entropy, AdamW: the digits' model, or a wider one."""

    def __init__(
        self,
        torch: Any,
        layers: list[tuple[Any, Any]],
        data: tuple[Any, Any],
        rows: Callable[[int], Any],
        *,
        tests: Tests,
        microbatches: int,
        rate: Callable[[int], float],
        decay: float = 0.01,
        fused: bool | None = None,
        bounds: tuple[float, ...] = (),
        ten: bool = False,
    ) -> None:
        """The peer with its first values.

        layers:  (weights f32[in out], bias f32[out]) of each
        bounds:  what the loss stays below, and above where there are two
        ten:     also count after each layer, and what is beyond 1e4, ten counts in all with three layers
        """
        super().__init__(torch, tests)
        self.layers = [tuple(torch.tensor(x, requires_grad=True) for x in layer) for layer in layers]
        self.params = [x for layer in self.layers for x in layer]
        self.optimizer = torch.optim.AdamW(self.params, lr=1e-3, weight_decay=decay, fused=fused)
        self.x, self.y = (torch.tensor(a) for a in data)
        self.rows, self.microbatches, self.rate = rows, microbatches, rate
        self.bounds, self.ten = bounds, ten

    def forward(self, x: Any) -> Any:
        """The logits, f32[batch classes]."""
        torch = self.torch
        for number, (w, b) in enumerate(self.layers):
            is_last = number == len(self.layers) - 1
            z = torch.addmm(b, x, w)
            x = z if is_last else torch.relu(z)
            if self.tests.written and self.ten:
                self.count_not_finite(z)
                self.count(x.abs() > 1e4)
            if self.tests.written and not is_last:
                self.count_not_finite(x)
        return x

    def step(self) -> float:
        """One step: microbatches, update, read."""
        torch = self.torch
        self.done += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.done)
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for rows in self.rows(self.done).chunk(self.microbatches):
            x, y = self.x[rows], self.y[rows]
            loss = torch.nn.functional.cross_entropy(self.forward(x), y) / self.microbatches
            loss.backward()
            if self.tests.written and self.bounds:
                self.count(~(loss < self.bounds[0] / self.microbatches))
                if len(self.bounds) > 1:
                    self.count(~(loss > self.bounds[1] / self.microbatches))
            total = total + loss.detach()
        if self.tests.finite:
            for p in self.params:
                self.count_not_finite(p.grad)
        self.optimizer.step()
        if self.tests.finite:
            for p in self.params:
                self.count_not_finite(p)
                self.count_not_finite(self.optimizer.state[p]["exp_avg"])
                self.count_not_finite(self.optimizer.state[p]["exp_avg_sq"])
        return self.read(total)


def mlp_layers(first: FirstValues, names: list[str]) -> list[tuple[Any, Any]]:
    """The weights and the bias of each of the layers `names`."""
    return [(first[f"{name}/w"], first[f"{name}/bias"]) for name in names]


def digits(
    torch: Any, first: FirstValues, data: tuple[Any, Any], rows: Callable[[int], Any], tests: Tests,
    fused: bool | None = None,
) -> Mlp:  # fmt: skip
    """The model of digits.sx."""
    x, y = data
    layers = mlp_layers(first, ["net/hidden0", "net/hidden1", "net/logits"])
    return Mlp(
        torch, layers, (x / np.float32(16.0), y.astype(np.int64)), rows, tests=tests, microbatches=2,
        rate=lambda step: warmup_cosine(2e-3, 20, 400, step), fused=fused, bounds=(20.0,),
    )  # fmt: skip


class Lorentz(Peer):
    """The model of lorentz.sx: points on a hyperboloid, moved along geodesics."""

    def __init__(
        self,
        torch: Any,
        first: FirstValues,
        data: tuple[Any, Any],
        rows: Callable[[int], Any],
        tests: Tests,
        wrong: Callable[[Any], Any] | None = None,
    ) -> None:
        """The peer with its first values.

        wrong:  gives the negatives, i64[n 50], of the children i64[n]; without it they are drawn
        """
        super().__init__(torch, tests)
        self.points = torch.tensor(first["points/points"], requires_grad=True)
        self.signs = torch.ones(self.points.shape[1])
        self.signs[0] = -1.0
        self.child, self.parent = (torch.tensor(a.astype(np.int64)) for a in data)
        self.rows, self.wrong = rows, wrong or self.drawn

    def drawn(self, child: Any) -> Any:
        """Negatives drawn among all points."""
        return self.torch.randint(0, len(self.points), (len(child), 50))

    def inner(self, x: Any, y: Any) -> Any:
        """The Lorentzian product over the last axis, which stays."""
        return (x * y * self.signs).sum(-1, keepdim=True)

    def objective(self, rows: Any) -> Any:
        """The loss of one microbatch."""
        torch = self.torch
        child = self.child[rows]
        candidates = torch.cat([self.parent[rows][:, None], self.wrong(child)], 1)
        u, v = self.points[child][:, None], self.points[candidates]
        distance = torch.acosh(torch.clamp(-self.inner(u, v), min=1.0 + 1e-6)).squeeze(-1)
        loss = torch.nn.functional.cross_entropy(-distance, torch.zeros(len(rows), dtype=torch.int64))
        if self.tests.written:
            self.count((1.0 + self.inner(v, v)).abs() > 1e-3)
            self.count(~(loss < 20.0))
        return loss

    def step(self) -> float:
        """One step: two microbatches, the move, the read."""
        torch = self.torch
        self.done += 1
        self.points.grad = None
        total = 0.0
        for rows in self.rows(self.done).chunk(2):
            loss = self.objective(rows) / 2
            loss.backward()
            total = total + loss.detach()
        with torch.no_grad():
            p, g = self.points, self.points.grad
            h = g * self.signs
            v = -3.0 * (h + p * self.inner(p, h))
            length = torch.sqrt(torch.clamp(self.inner(v, v), min=1e-12))
            moved = torch.cosh(length) * p + torch.sinh(length) / length * v
            space = moved[:, 1:]
            new = torch.cat([torch.sqrt(1.0 + space.square().sum(-1, keepdim=True)), space], -1)
            if self.tests.written:
                self.count_not_finite(moved)
            if self.tests.finite:
                self.count_not_finite(g)
                self.count_not_finite(new)
            p.copy_(new)
        return self.read(total)


class Characters(Peer):
    """The model of characters.sx: a transformer that normalises before each layer."""

    layers, heads, width = 4, 4, 128

    def __init__(
        self,
        torch: Any,
        first: FirstValues,
        tokens: Any,
        tests: Tests,
        *,
        span: int,
        bf16: bool = False,
        windows: Callable[[int], Any] | None = None,
    ) -> None:
        """The peer with its first values.

        tokens:   i64[n], the text
        bf16:     whether the model computes under PyTorch's autocast to bf16
        windows:  gives where the examples begin, i64[n 1], of their number; without it they are drawn
        """
        super().__init__(torch, tests)
        self.params = {name: torch.tensor(x, requires_grad=True) for name, x in first.items()}
        biases = [x for name, x in self.params.items() if name.endswith("/bias")]
        others = [x for name, x in self.params.items() if not name.endswith("/bias")]
        self.optimizer = torch.optim.AdamW(
            [{"params": biases, "lr": 1e-3, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.1}]
        )
        self.tokens, self.span, self.bf16 = torch.tensor(tokens), span, bf16
        self.windows = windows or self.drawn

    def drawn(self, n: int) -> Any:
        """Windows drawn over all of the text."""
        return self.torch.randint(0, len(self.tokens) - self.span - 1, (n, 1))

    def linear(self, name: str, x: Any) -> Any:
        """`x` times the weights of a layer, plus its bias."""
        return self.torch.nn.functional.linear(x, self.params[f"{name}/w"].T, self.params[f"{name}/bias"])

    def norm(self, name: str, x: Any) -> Any:
        """The rows of `x`, normalised."""
        scale, bias = self.params[f"{name}/scale"], self.params[f"{name}/bias"]
        return self.torch.nn.functional.layer_norm(x, (self.width,), scale, bias)

    def attend(self, name: str, x: Any) -> Any:
        """Causal attention of several heads."""
        b, t, _ = x.shape
        q, k, v = (
            y.view(b, t, self.heads, self.width // self.heads).transpose(1, 2)
            for y in self.linear(f"{name}/qkv", x).split(self.width, -1)
        )
        y = self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(f"{name}/out", y.transpose(1, 2).reshape(b, t, self.width))

    def forward(self, ids: Any) -> Any:
        """The logits, f32[batch span vocabulary]."""
        functional = self.torch.nn.functional
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.bf16):
            x = functional.embedding(ids, self.params["net/token/table"])
            x = x + self.params["net/position"][: ids.shape[1]]
            for layer in range(self.layers):
                at = f"net/block{layer}"
                x = x + self.attend(f"{at}/attention", self.norm(f"{at}/norm1", x))
                up = functional.gelu(self.linear(f"{at}/up", self.norm(f"{at}/norm2", x)), approximate="tanh")
                x = x + self.linear(f"{at}/down", up)
                if self.tests.written:
                    self.count_not_finite(x)
            return self.linear("net/head", self.norm("net/norm", x)).float()

    def step(self) -> float:
        """One step: two microbatches of eight windows, the update, the read."""
        torch = self.torch
        self.done += 1
        self.optimizer.param_groups[1]["lr"] = warmup_cosine(1e-3, 50, 600, self.done)
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for _ in range(2):
            ids = self.tokens[self.windows(8) + torch.arange(self.span + 1)]
            logits = self.forward(ids[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / 2
            loss.backward()
            if self.tests.written:
                self.count(~(loss < 3.0))
            total = total + loss.detach()
        if self.tests.finite:
            for p in self.params.values():
                self.count_not_finite(p.grad)
        self.optimizer.step()
        if self.tests.finite:
            for p in self.params.values():
                self.count_not_finite(p)
                self.count_not_finite(self.optimizer.state[p]["exp_avg"])
                self.count_not_finite(self.optimizer.state[p]["exp_avg_sq"])
        return self.read(total)
