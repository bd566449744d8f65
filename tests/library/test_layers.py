"""The library's layers against torch.nn with the same weights: loss, gradients by one step, a pass afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.library.running import Run, begun

torch = pytest.importorskip("torch")
nn: Any = torch.nn  # its layers are called through Any, since torch is not installed where the types are checked

RNG = np.random.default_rng(11)
ROWS = 6


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def program(layer: str, microbatches: int = 1) -> str:
    """One step of plain gradient descent by a loss that weighs each element differently, then a pass."""
    return f"""
        (model net (x) {layer})
        (objective (batch) (metric "loss" (mean (* (:t batch) (net (:x batch))))))
        (evaluate after (batch) (output "y" (net (:x batch))))
        (run r :data points :batch {ROWS} :microbatches {microbatches} :shuffle off :steps 1
          :optimizer (sgd :lr 1.0) :evaluate [(after :data points :batch {ROWS})])"""


def weights(layer: Any) -> dict[str, Any]:
    """The parameters of torch's layer, moved off their first values so that no bias is 0, as f64 leaves."""
    layer.double()
    for p in layer.parameters():
        p.data += torch.tensor(RNG.normal(size=tuple(p.shape)) * 0.1)
    return dict(layer.named_parameters())


def host(x: Any) -> Any:
    return x.detach().numpy().copy()  # torch updates its parameters in place


# Names of ours -> the torch layer's parameters as ours hold them.
Weights = Callable[[Any], dict[str, Any]]


def same(**names: str) -> Weights:
    return lambda layer: {ours.replace("_", "/"): host(dict(layer.named_parameters())[p]) for ours, p in names.items()}


def dense(prefix: str, layer: Any) -> dict[str, Any]:
    return {f"net/{prefix}/w": host(layer.weight).T, f"net/{prefix}/bias": host(layer.bias)}


def kernel(layer: Any) -> dict[str, Any]:
    return {"net/c/w": host(layer.weight).transpose(2, 3, 1, 0), "net/c/bias": host(layer.bias)}


def attended(layer: Any) -> dict[str, Any]:
    return {
        "net/a/qkv/w": host(layer.in_proj_weight).T,
        "net/a/qkv/bias": host(layer.in_proj_bias),
        "net/a/out/w": host(layer.out_proj.weight).T,
        "net/a/out/bias": host(layer.out_proj.bias),
    }


def recurrent(layer: Any) -> dict[str, Any]:
    return {
        "net/r/input/w": host(layer.weight_ih_l0).T,
        "net/r/input/bias": host(layer.bias_ih_l0),
        "net/r/hidden/w": host(layer.weight_hh_l0).T,
        "net/r/hidden/bias": host(layer.bias_hh_l0),
    }


def lstm_weights(layer: Any) -> dict[str, Any]:
    # ours has one bias where torch has two: the other is kept at 0
    layer.bias_hh_l0.data.zero_()
    layer.bias_hh_l0.requires_grad_(False)
    return {k: v for k, v in recurrent(layer).items() if k != "net/r/hidden/bias"}


def causal(layer: Any, x: Any) -> Any:
    hidden = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
    return layer(x, x, x, attn_mask=hidden, need_weights=False)[0]


def images(layer: Any, x: Any) -> Any:
    return layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


IDS = np.array([[0, 4, 2], [1, 1, 3], [2, 0, 0], [4, 3, 2], [0, 1, 2], [3, 3, 3]], dtype=np.int32)
CALL = lambda layer, x: layer(x)  # noqa: E731  # most of the table's rows call the layer so

# ours, torch's, its weights as ours, its call, the batch
LAYERS: dict[str, tuple[str, Any, Weights, Callable[[Any, Any], Any], Any]] = {
    "linear": (
        '(linear "l" x 4)', lambda: nn.Linear(3, 4), lambda layer: dense("l", layer), CALL, normal(ROWS, 3),
    ),
    "linear of sequences": (
        '(linear "l" x 4)', lambda: nn.Linear(3, 4), lambda layer: dense("l", layer), CALL, normal(ROWS, 2, 3),
    ),
    "linear without bias": (
        '(linear "l" x 4 :bias false :init he)', lambda: nn.Linear(3, 4, bias=False),
        lambda layer: {"net/l/w": host(layer.weight).T}, CALL, normal(ROWS, 3),
    ),
    "embed": ('(embed "e" x 5 4)', lambda: nn.Embedding(5, 4), same(net_e_table="weight"), CALL, IDS),
    "layer-norm-with": (
        '(layer-norm-with "n" x)', lambda: nn.LayerNorm(5),
        same(net_n_scale="weight", net_n_bias="bias"), CALL, normal(ROWS, 2, 5),
    ),
    "rms-norm-with": (
        '(rms-norm-with "n" x :eps 0.01)', lambda: nn.RMSNorm(5, eps=0.01),
        same(net_n_scale="weight"), CALL, normal(ROWS, 2, 5),
    ),
    "self-attention": (
        '(self-attention "a" x 2)', lambda: nn.MultiheadAttention(8, 2, batch_first=True), attended,
        lambda layer, x: layer(x, x, x, need_weights=False)[0], normal(ROWS, 4, 8),
    ),
    "self-attention, causal": (
        '(self-attention "a" x 4 :causal true)', lambda: nn.MultiheadAttention(8, 4, batch_first=True), attended,
        causal, normal(ROWS, 4, 8),
    ),
    "self-attention, masked": (
        '(self-attention "a" x 4 :mask (tril (= (ones [4 4]) 1.0)))',
        lambda: nn.MultiheadAttention(8, 4, batch_first=True), attended, causal, normal(ROWS, 4, 8),
    ),
    "mlp": (
        '(mlp "m" x [5 4 2])',
        lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)),
        lambda layer: dense("m/0", layer[0]) | dense("m/1", layer[2]) | dense("m/2", layer[4]), CALL, normal(ROWS, 3),
    ),
    "mlp with its own activation": (
        '(mlp "m" x [5 2] :activation (lambda (h) (tanh (* 2.0 h))))',
        lambda: nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)),
        lambda layer: dense("m/0", layer[0]) | dense("m/1", layer[1]),
        lambda layer, x: layer[1](torch.tanh(2 * layer[0](x))), normal(ROWS, 3),
    ),
    "conv": (
        '(conv "c" x 4 3)', lambda: nn.Conv2d(2, 4, 3, padding="same"), kernel, images, normal(ROWS, 5, 6, 2),
    ),
    "conv with a stride": (
        '(conv "c" x 3 2 :stride 2 :padding :valid)', lambda: nn.Conv2d(2, 3, 2, stride=2), kernel, images,
        normal(ROWS, 5, 6, 2),
    ),
    "gru": (
        '(gru "r" x 4)', lambda: nn.GRU(3, 4, batch_first=True), recurrent,
        lambda layer, x: layer(x)[0], normal(ROWS, 7, 3),
    ),
    "lstm": (
        '(lstm "r" x 4)', lambda: nn.LSTM(3, 4, batch_first=True), lstm_weights,
        lambda layer, x: layer(x)[0], normal(ROWS, 7, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str, tmp_path: Path) -> None:
    written, make, as_ours, call, x = LAYERS[name]
    layer = make()
    weights(layer)
    first = as_ours(layer)
    given = torch.tensor(x, dtype=torch.float64 if x.dtype == np.float32 else torch.int64)
    y = call(layer, given)
    t = normal(*y.shape)
    loss = (y * torch.tensor(t, dtype=torch.float64)).mean()
    loss.backward()
    torch.optim.SGD([p for p in layer.parameters() if p.requires_grad], lr=1.0).step()

    ours = begun(tmp_path, program(written), {"x": x, "t": t}, first)
    assert set(ours.params) == set(first)
    ours.to_the_end()
    assert ours.points["loss", None] == [pytest.approx(loss.item(), rel=1e-5, abs=1e-6)]
    for param, expected in as_ours(layer).items():
        np.testing.assert_allclose(ours.params[param], expected, rtol=1e-5, atol=2e-6, err_msg=param)
        assert np.abs(expected - first[param]).max() > 1e-4 or param.endswith("qkv/bias")
    np.testing.assert_allclose(ours.outputs["y"], host(call(layer, given)), rtol=1e-5, atol=5e-6)


# Batch normalization: states, microbatches, passes


@pytest.mark.parametrize("microbatches", [1, 2, 3])
@pytest.mark.parametrize("shape", [(ROWS, 4), (ROWS, 3, 2, 4)], ids=["rows", "images"])
def test_batch_norm_is_torchs_with_states_the_mean_of_the_microbatches(
    shape: tuple[int, ...], microbatches: int, tmp_path: Path
) -> None:
    x, t = normal(*shape) * 2 + 1, normal(*shape)
    layer = nn.BatchNorm1d(4) if len(shape) == 2 else nn.BatchNorm2d(4)
    weights(layer)
    first = {"net/n/scale": host(layer.weight), "net/n/bias": host(layer.bias)}
    begin = {k: v.clone() for k, v in layer.state_dict().items()}
    kept: dict[str, list[Any]] = {"running_mean": [], "running_var": []}
    losses = []
    for part, target in zip(np.split(x, microbatches), np.split(t, microbatches), strict=True):
        layer.load_state_dict(begin)  # each microbatch reads the states from before the step
        loss = (batch_norm(layer, part) * torch.tensor(target, dtype=torch.float64)).mean() / microbatches
        loss.backward()
        losses.append(loss.item())
        for name, values in kept.items():
            values.append(host(getattr(layer, name)))
    torch.optim.SGD(layer.parameters(), lr=1.0).step()

    ours = begun(tmp_path, program('(batch-norm "n" x)', microbatches), {"x": x, "t": t}, first)
    np.testing.assert_array_equal(ours.states["net/n/mean"], np.zeros(4))
    np.testing.assert_array_equal(ours.states["net/n/var"], np.ones(4))
    ours.to_the_end()
    assert ours.points["loss", None] == [pytest.approx(sum(losses), rel=1e-5, abs=1e-6)]
    mean, var = [np.mean(values, axis=0) for values in kept.values()]
    np.testing.assert_allclose(ours.states["net/n/mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(ours.states["net/n/var"], var, rtol=1e-5)
    np.testing.assert_allclose(ours.params["net/n/scale"], host(layer.weight), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.params["net/n/bias"], host(layer.bias), rtol=1e-5, atol=1e-6)

    layer.running_mean.data, layer.running_var.data = torch.tensor(mean), torch.tensor(var)
    layer.eval()
    np.testing.assert_allclose(ours.outputs["y"], host(batch_norm(layer, x)), rtol=1e-5, atol=1e-5)


def batch_norm(layer: Any, x: Any) -> Any:
    given = torch.tensor(x, dtype=torch.float64)
    return layer(given) if x.ndim == 2 else images(layer, given)


def test_a_pass_leaves_batch_norms_states(tmp_path: Path) -> None:
    text = program('(batch-norm "n" x :rate 0.5)').replace(":steps 1", ":steps 2")
    text = text.replace("(after :data points", "(after :every 1 :data points")
    with_passes = begun(tmp_path, text, {"x": normal(ROWS, 4), "t": normal(ROWS, 4)})
    plan = with_passes.runner.compiled.passes[0][False]
    with with_passes.runner.backend.computing():
        with_passes.runner.take_pass(plan)
    np.testing.assert_array_equal(with_passes.states["net/n/mean"], np.zeros(4))
    with_passes.to_the_end()
    without = begun(tmp_path, text.replace(":every 1 ", ""), dict(np.load(tmp_path / "points.npz"))).to_the_end()
    for state in ("mean", "var"):
        np.testing.assert_array_equal(with_passes.states[f"net/n/{state}"], without.states[f"net/n/{state}"])


# What depends on time and on names


def test_a_recurrent_layer_sees_no_later_time(tmp_path: Path) -> None:
    text = program('(lstm "b" (gru "a" x 3) 2)')
    x, t = normal(ROWS, 5, 2), normal(ROWS, 5, 2)
    changed = x.copy()
    changed[:, 3:] += 1
    zero = {"x": x, "t": np.zeros_like(t)}
    outputs = [begun(tmp_path, text, {**zero, "x": given}).to_the_end().outputs["y"] for given in (x, changed)]
    np.testing.assert_array_equal(outputs[0][:, :3], outputs[1][:, :3])
    assert np.all(np.abs(outputs[0][:, 3:] - outputs[1][:, 3:]) > 0)


def test_the_hidden_weights_are_shared_over_time(tmp_path: Path) -> None:
    ours: Run = begun(tmp_path, program('(gru "r" x 4)'), {"x": normal(ROWS, 9, 3), "t": normal(ROWS, 9, 4)})
    shapes = {name: np.shape(p) for name, p in ours.params.items()}
    assert shapes == {
        "net/r/input/w": (3, 12), "net/r/input/bias": (12,), "net/r/hidden/w": (4, 12), "net/r/hidden/bias": (12,),
    }  # fmt: skip
