"""A latent mixture-of-experts layer with its experts spread over devices.

    out, stats = moe(x, valid, weights, bias, config, mesh)

Tokens [T, D] are spread over the mesh axes ("data", "expert"), experts over "expert", everything else is on every
device. Per device: route at full width, go down to the latent width and norm, send rows to where their experts are,
work, send back, sum weighted, go up again; shared experts see every token and wait for none of this.

Invariant: when nothing is dropped, output and all gradients equal `steps.model.moe.reference.dense_moe` at any degree
of expert parallelism; what is dropped is decided by `steps.model.moe.plan` alone and counted exactly.

Letters: T tokens (of all devices outside of `shard_map`, of this one inside), D hidden, E experts, K experts per
token, l width that experts work at.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

from steps.model.config import ModelConfig, Transport
from steps.model.moe.balancing import auxiliary_loss, balancing_bias, sign_bias
from steps.model.moe.dispatch.choice import choose
from steps.model.moe.plan import Limits, Plan
from steps.model.moe.routed import EXPERT_AXIS, routed_experts
from steps.model.moe.router import Routing, route
from steps.model.moe.shuffle import collect, deal_out
from steps.model.moe.stats import MoEStats, entropy_of
from steps.model.moe.weights import MoEWeights
from steps.model.norm import rms_norm

__all__ = ["MoEStats", "MoEWeights", "moe"]

DATA_AXIS = "data"
AXES = (DATA_AXIS, EXPERT_AXIS)

SPREAD_OVER_EXPERTS = ("w_gate_up", "w_down")
"""The arrays whose first axis (without the layers' axis) is spread over the expert axis; all others are everywhere."""


def moe(
    x: Float[Array, "T D"],
    valid: Bool[Array, " T"],
    weights: MoEWeights,
    bias: Float[Array, " E"],
    config: ModelConfig,
    mesh: Mesh,
    *,
    keep_histogram: bool = False,
) -> tuple[Float[Array, "T D"], MoEStats]:
    """The layer's output for every token, zero where `valid` is not, and what was measured on the way.

    With `keep_histogram` the statistics hold what the bias was read from, for microbatches to be merged.

    Raises:
        ValueError: the mesh is not the one the config asks for, or T does not divide over it.
    """
    _check(x.shape[0], config, mesh)

    tokens = x.shape[0] // mesh.size
    limits = Limits.of(config, tokens)
    platform = mesh.devices.flat[0].platform
    transport = choose(config.transport, platform, limits, tokens=tokens, top_k=config.top_k)

    def on_device(x, valid, weights, bias):
        return _on_device(x, valid, weights, bias, config, limits, transport, keep_histogram)

    return jax.shard_map(
        on_device, mesh=mesh, in_specs=(P(AXES), P(AXES), _specs(weights), P()), out_specs=(P(AXES), P())
    )(x, valid, weights, bias)


def _on_device(
    x: Float[Array, "T D"],
    valid: Bool[Array, " T"],
    weights: MoEWeights,
    bias: Float[Array, " E"],
    config: ModelConfig,
    limits: Limits,
    transport: Transport,
    keep_histogram: bool,
) -> tuple[Float[Array, "T D"], MoEStats]:
    x = jnp.where(valid[:, None], x, 0)
    with jax.named_scope("router"):
        routing = route(x, weights.router, bias, top_k=config.top_k, combine_scale=config.combine_scale)
    with jax.named_scope("latent_down"):
        inner = x
        if weights.latent_down is not None and weights.latent_norm is not None:
            inner = rms_norm(x @ weights.latent_down, weights.latent_norm, config.norm_eps)
    experts, scales, sent_valid = routing.experts, routing.weights, valid
    dealt = config.shuffle_tokens and limits.num_devices > 1
    if dealt:
        with jax.named_scope("shuffle"):
            inner, experts, scales, sent_valid = (deal_out(one, EXPERT_AXIS) for one in (inner, experts, scales, valid))
    # On the data axis every device has a copy of the experts: said here, their gradients are summed over it.
    w_gate_up, w_down = (jax.lax.pcast(w, DATA_AXIS, to="varying") for w in (weights.w_gate_up, weights.w_down))
    routed, plan, counts = routed_experts(
        inner,
        sent_valid,
        experts,
        scales,
        w_gate_up,
        w_down,
        limits=limits,
        transport=transport,
    )
    if dealt:
        with jax.named_scope("shuffle"):
            routed = collect(routed, EXPERT_AXIS)
    with jax.named_scope("latent_up"):
        out = routed if weights.latent_up is None else routed @ weights.latent_up
    if config.num_shared_experts:
        with jax.named_scope("shared_experts"):
            out = out + _shared(x, weights)
    out = jnp.where((valid & ~routing.finite)[:, None], jnp.nan, out)
    with jax.named_scope("router_stats"):
        stats = _measure(routing, valid, bias, plan, counts, config, keep_histogram)
    return out, stats


def _shared(x: Float[Array, "T D"], weights: MoEWeights) -> Float[Array, "T D"]:
    gate, up = jnp.split(x @ weights.shared_gate_up, 2, axis=-1)
    return (jax.nn.silu(gate) * up) @ weights.shared_down


def _measure(
    routing: Routing,
    valid: Bool[Array, " T"],
    bias: Float[Array, " E"],
    plan: Plan,
    counts: Int[Array, " E"],
    config: ModelConfig,
    keep_histogram: bool,
) -> MoEStats:
    """Sums over all devices; no gradient flows from here."""
    me = jax.lax.axis_index(EXPERT_AXIS) if config.expert_parallel > 1 else 0
    logits = jax.lax.stop_gradient(routing.logits)
    counted = valid & routing.finite
    quantile, margin_min, margin_max, histogram = balancing_bias(
        routing.margins, counted, bias, top_k=config.top_k, axes=AXES
    )
    z = jnp.sum(jnp.square(jax.nn.logsumexp(logits, axis=-1)), where=counted)
    here = (
        jnp.sum(plan.accepted[me]),
        plan.sender_dropped[me],
        plan.receiver_dropped[me],
        jnp.sum(valid, dtype=jnp.int32),
        jnp.sum(~valid, dtype=jnp.int32),
        jnp.sum(valid & ~routing.finite, dtype=jnp.int32),
    )
    totals = jax.lax.psum(jnp.concatenate([jnp.stack(here), counts]), AXES)
    accepted, sender_dropped, receiver_dropped, num_valid, num_padding, nonfinite = totals[: len(here)]
    load, z = totals[len(here) :], jax.lax.psum(z, AXES)
    # Not the logits without gradient: this one is trained on where the config says so.
    balance_loss = auxiliary_loss(
        routing.logits if config.auxiliary_loss else logits,
        counted,
        load,
        num_valid - nonfinite,
        top_k=config.top_k,
        axes=AXES,
    )
    next_bias = quantile if config.balancing == "quantile" else bias
    if config.balancing == "sign":
        next_bias = sign_bias(load, bias, rate=config.bias_rate)
    pairs = jnp.sum(plan.wanted.reshape(config.expert_parallel, config.expert_parallel, -1), axis=-1)
    return MoEStats(
        next_bias=next_bias,
        load=load,
        assignments=num_valid * config.top_k,
        accepted=accepted,
        sender_dropped=sender_dropped,
        receiver_dropped=receiver_dropped,
        padding=num_padding * config.top_k,
        nonfinite=nonfinite,
        entropy=entropy_of(load),
        z_loss=z / jnp.maximum(num_valid - nonfinite, 1),
        balance_loss=balance_loss,
        largest_pair=_largest(pairs),
        largest_device=_largest(jnp.sum(pairs, axis=0)),
        margin_min=margin_min,
        margin_max=margin_max,
        histogram=histogram if keep_histogram else None,
    )


def _largest(rows: Int[Array, "..."]) -> Float[Array, ""]:
    """The largest over the mean, of the worst data-parallel group; 1 where there are no rows at all."""
    total = jnp.sum(rows)
    ratio = jnp.where(total > 0, jnp.max(rows) * rows.size / jnp.maximum(total, 1), 1.0)
    return jax.lax.pmax(ratio, AXES)


def _specs(weights: MoEWeights) -> Any:
    """The partition spec of every array."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: P(EXPERT_AXIS) if path[-1].name in SPREAD_OVER_EXPERTS else P(), weights
    )


def _check(num_tokens: int, config: ModelConfig, mesh: Mesh) -> None:
    if tuple(mesh.axis_names) != AXES or mesh.shape[EXPERT_AXIS] != config.expert_parallel:
        raise ValueError(
            f"moe: expected a mesh of axes {AXES} whose {EXPERT_AXIS!r} axis has ModelConfig.expert_parallel"
            f"({config.expert_parallel}) devices; found {dict(mesh.shape)}. Make the mesh to fit, or set "
            f"expert_parallel."
        )
    data, expert = mesh.shape[DATA_AXIS], mesh.shape[EXPERT_AXIS]
    if num_tokens % (data * expert):
        raise ValueError(
            f"moe: tokens are spread evenly over {DATA_AXIS} and {EXPERT_AXIS}: tokens({num_tokens}) % ({DATA_AXIS}"
            f"({data}) * {EXPERT_AXIS}({expert})) = {num_tokens % (data * expert)}, not 0. Change the batch or the "
            f"mesh."
        )
