"""The shape of a model, and everything that follows from it by arithmetic.

Parameters, active parameters, FLOPs and bytes of a mixture-of-experts transformer come from its shape alone, so a
recipe can plan and estimate a run on a machine that could never hold it:

    >>> ModelConfig.of_family(hidden=6144, num_layers=48).parameters_total
    535477106688

Invariant: nothing here imports JAX or NumPy, every number is an exact integer, and `parameters_total` equals the
number of elements in the arrays that `steps.model.transformer.init` makes from the same config (a test counts them).

Letters: V vocabulary, D hidden, L layers, H query heads, KV stored key/value heads, HD head dimension, E experts,
K experts per token, I expert width, l latent width (D without a latent), R rank of the gated norms.
"""

import dataclasses
import math
from typing import Literal

from executor import added, execution

HEAD_DIM = 128
TRAINING_PASSES = 3
"""Training costs three forward passes: one forward, and a backward of twice that."""

Transport = Literal["auto", "local", "waves", "ragged", "ring", "dense"]
"""How rows travel to their experts; steps.model.moe.dispatch.choice says which does where."""

Remat = Literal["none", "experts", "layer"]
"""What is kept from the forward pass for the backward one: everything; of each layer the experts' intermediates; or
only each layer's input (the least memory, and the expert exchange runs once more)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One model. Defaults are what every member of the family shares; the rest is its size.

    Attributes:
        hidden: width D of the residual stream.
        num_heads: query heads H of `head_dim` each.
        num_kv_heads: key/value heads that are stored in every layer, and used by the windowed ones.
        num_global_kv_heads: key/value heads a global layer uses; it attends with that many groups of query heads,
            taking the first `num_global_kv_heads` of the stored ones.
        window: tokens a windowed layer sees, its own included.
        sequence_length: tokens per sequence; only FLOPs depend on it.
        global_every: every such layer is global (full causal attention without positions), and so is the last one.
        latent: width experts work at, None for the full hidden width.
        num_shared_experts: dense experts of `shared_width` that every token passes, at full hidden width.
        combine_scale: what a token's routing weights sum to.
        gated_norm_rank: rank R of the gate behind every RMSNorm.
        conv_kernel: taps of the short convolutions on keys, attention output and expert output, 0 for none.
        capacity_factor: rows a device takes in, relative to a perfectly even load, pooled over its experts; None for
            no limit, so that nothing is ever dropped.
        pair_capacity_factor: rows one device may send another, relative to a perfectly even load; None for no limit.
        expert_parallel: devices that the experts of one layer are spread over; identity, since drops depend on it.
        shuffle_tokens: tokens are dealt out over the expert axis before they are sent: fewer drops where documents are
            long, for one more exchange there and back.
        balancing: how the router bias of the next step comes to be (steps.model.moe.balancing).
        bias_rate: step of the `sign` bias, in units of a logit.
        auxiliary_loss: weight of the balancing loss, summed over layers; 0 leaves it out of the gradient.
        xsa, head_gate, gated_norm, qk_norm, rope: parts of the architecture, switched off by ablations only.
        compute_dtype: type of activations and of the weights as they are used; parameters are kept in fp32.
        remat: what is kept for the backward pass; changes memory and time, never the result.
        transport: how rows travel to their experts (steps.model.moe.dispatch.choice); the same.
    """

    vocab_size: int
    hidden: int
    num_layers: int
    num_heads: int
    head_dim: int = HEAD_DIM
    num_kv_heads: int
    num_global_kv_heads: int
    window: int
    sequence_length: int
    global_every: int = 4
    rope_theta: float = 1e4
    qk_mult: float = 1.3
    num_experts: int
    top_k: int
    expert_width: int
    latent: int | None
    num_shared_experts: int = 2
    shared_width: int
    combine_scale: float = 2.5
    gated_norm_rank: int = 128
    norm_eps: float = 1e-5
    conv_kernel: int = 4
    capacity_factor: float | None = 1.15
    pair_capacity_factor: float | None = None
    expert_parallel: int = 1
    z_loss: float = 1e-4
    xsa: bool = True
    head_gate: bool = True
    gated_norm: bool = True
    qk_norm: bool = True
    rope: bool = True
    shuffle_tokens: bool = added(default=False, born=False)
    balancing: Literal["quantile", "sign", "none"] = added(default="quantile", born="quantile")
    bias_rate: float = added(default=1e-3, born=1e-3)
    auxiliary_loss: float = added(default=0.0, born=0.0)
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    remat: Remat = execution("experts")
    transport: Transport = execution("auto")

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ValueError(f"ModelConfig.{name}: expected at least 1, found {getattr(self, name)}")
        for name in ("num_kv_heads", "num_global_kv_heads"):
            if self.num_heads % getattr(self, name):
                raise ValueError(
                    f"ModelConfig.{name}: query heads are shared out evenly over key/value heads, so it must divide "
                    f"num_heads; found num_heads({self.num_heads}) % {name}({getattr(self, name)}) = "
                    f"{self.num_heads % getattr(self, name)}"
                )
        if self.num_global_kv_heads > self.num_kv_heads:
            raise ValueError(
                f"ModelConfig.num_global_kv_heads: expected at most num_kv_heads({self.num_kv_heads}), the heads that "
                f"are stored; found {self.num_global_kv_heads}"
            )
        if self.head_dim % 4:
            raise ValueError(
                f"ModelConfig.head_dim: half of it is rotated in pairs: expected 4n, found {self.head_dim}"
            )
        if self.top_k >= self.num_experts:
            raise ValueError(
                f"ModelConfig.top_k: the first expert not chosen sets a token's threshold, so expected "
                f"top_k < num_experts({self.num_experts}); found {self.top_k}"
            )
        if self.num_experts % self.expert_parallel:
            raise ValueError(
                f"ModelConfig.expert_parallel: expected a divisor of num_experts; found num_experts"
                f"({self.num_experts}) % expert_parallel({self.expert_parallel}) = "
                f"{self.num_experts % self.expert_parallel}"
            )
        if self.latent is not None and self.latent < 1:
            raise ValueError(f"ModelConfig.latent: expected at least 1, or None for no latent; found {self.latent}")
        if self.num_shared_experts < 0 or self.conv_kernel < 0:
            raise ValueError(
                f"ModelConfig: expected num_shared_experts and conv_kernel of at least 0; found "
                f"{self.num_shared_experts} and {self.conv_kernel}"
            )

    @classmethod
    def of_family(
        cls,
        *,
        hidden: int,
        num_layers: int,
        vocab_size: int = 128_256,
        head_dim: int = HEAD_DIM,
        num_experts: int = 384,
        top_k: int = 8,
        window: int = 2048,
        sequence_length: int = 4096,
        gated_norm_rank: int = 128,
        capacity_factor: float = 1.15,
        expert_parallel: int = 1,
    ) -> "ModelConfig":
        """The family's rule for shapes (docs/hero.md, section 2): all but depth follows from the width.

        Heads fill the width; four query heads share a stored key/value head and eight a global one; experts, their
        latent and the two shared experts are half as wide as the model.
        """
        if hidden % head_dim:
            raise ValueError(
                f"ModelConfig.of_family: hidden must be a multiple of head_dim; found hidden({hidden}) % "
                f"head_dim({head_dim}) = {hidden % head_dim}"
            )
        num_heads = hidden // head_dim
        return cls(
            vocab_size=vocab_size,
            hidden=hidden,
            num_layers=num_layers,
            num_heads=num_heads,
            head_dim=head_dim,
            num_kv_heads=_kv_heads(num_heads, 4),
            num_global_kv_heads=_kv_heads(num_heads, 8),
            window=window,
            sequence_length=sequence_length,
            num_experts=num_experts,
            top_k=top_k,
            expert_width=hidden // 2,
            latent=hidden // 2,
            num_shared_experts=2,
            shared_width=hidden // 2,
            gated_norm_rank=gated_norm_rank,
            capacity_factor=capacity_factor,
            expert_parallel=expert_parallel,
        )

    # Structure ------------------------------------------------------------------------------------------------

    @property
    def expert_input(self) -> int:
        """Width l that tokens have on their way to the experts and back."""
        return self.hidden if self.latent is None else self.latent

    @property
    def global_layers(self) -> tuple[bool, ...]:
        """For each layer, whether it attends to everything before it (and knows no positions)."""
        last = self.num_layers - 1
        return tuple(layer % self.global_every == self.global_every - 1 or layer == last for layer in range(last + 1))

    @property
    def initializer_std(self) -> float:
        """Standard deviation that matrices are drawn with, before truncation at three of it: 0.5 / sqrt(D)."""
        return 0.5 / math.sqrt(self.hidden)

    # Parameters -----------------------------------------------------------------------------------------------

    @property
    def parameters_by_part(self) -> dict[str, int]:
        """Elements of every array of the model by part; all layers together. Their sum is `parameters_total`."""
        d, layers, query, stored = self.hidden, self.num_layers, self._query_width, self.num_kv_heads * self.head_dim
        latent = self.latent
        num_norms = 2 * layers + 2
        return {
            "embedding": self.vocab_size * d,
            "lm_head": d * self.vocab_size,
            "attention": layers * (2 * d * query + 2 * d * stored),
            "head_gate": layers * d * self.num_heads if self.head_gate else 0,
            "norm_gains": num_norms * d,
            "gated_norm": num_norms * 2 * d * self.gated_norm_rank if self.gated_norm else 0,
            "conv": layers * self.conv_kernel * (stored + 2 * d),
            "router": layers * d * self.num_experts,
            "router_bias": layers * self.num_experts,
            "latent": layers * (2 * d * latent + latent) if latent is not None else 0,
            "experts": layers * self.num_experts * self._expert_parameters,
            "shared_experts": layers * self._shared_parameters,
        }

    @property
    def parameters_total(self) -> int:
        """Every element, the router bias (state, not a trained weight) among them, as the public count has it."""
        return sum(self.parameters_by_part.values())

    @property
    def parameters_active(self) -> int:
        """Elements of the matrices that one token passes, embedding, head, gates and norms aside (docs/hero.md)."""
        d, latent = self.hidden, self.latent
        per_layer = (
            2 * d * self._query_width
            + 2 * d * self.num_kv_heads * self.head_dim
            + d * self.num_experts
            + self.top_k * self._expert_parameters
            + (2 * d * latent if latent is not None else 0)
            + self._shared_parameters
        )
        return self.num_layers * per_layer

    # FLOPs ----------------------------------------------------------------------------------------------------

    @property
    def forward_flops_per_token(self) -> int:
        """FLOPs of one token's forward pass at `sequence_length` (docs/hero.md, section 7), the head included."""
        return self.forward_flops_per_token_without_lm_head + 2 * self.hidden * self.vocab_size

    @property
    def forward_flops_per_token_without_lm_head(self) -> int:
        """The measure of compute that the scaling ladder is fitted on.

        Published figures count num_layers // global_every global layers, although the last layer is global too,
        and no causal half; both are kept so that compute is comparable with the public record.
        """
        num_global = self.num_layers // self.global_every
        return num_global * self._layer_flops(self.num_global_kv_heads, self.sequence_length) + (
            self.num_layers - num_global
        ) * self._layer_flops(self.num_kv_heads, min(self.window, self.sequence_length))

    @property
    def routed_expert_flops_per_token(self) -> int:
        """Forward FLOPs in routed experts, all layers, projections to and from the latent aside."""
        return self.num_layers * 2 * self.top_k * self._expert_parameters

    @property
    def shared_expert_flops_per_token(self) -> int:
        """Forward FLOPs in shared experts, all layers."""
        return self.num_layers * 2 * self._shared_parameters

    def training_flops(self, tokens: int) -> int:
        """FLOPs of training on `tokens` tokens: three forward passes each."""
        return TRAINING_PASSES * self.forward_flops_per_token * tokens

    def training_flops_without_lm_head(self, tokens: int) -> int:
        """The same without the head: the C of the scaling law."""
        return TRAINING_PASSES * self.forward_flops_per_token_without_lm_head * tokens

    # Bytes ----------------------------------------------------------------------------------------------------

    def parameter_bytes(self, bytes_per_element: int = 4) -> int:
        """Bytes of one whole copy of the arrays."""
        return bytes_per_element * self.parameters_total

    def bytes_by_part(self, bytes_per_element: int = 4) -> dict[str, int]:
        """Bytes of one whole copy, by part."""
        return {part: bytes_per_element * count for part, count in self.parameters_by_part.items()}

    def expert_bytes_per_device(self, bytes_per_element: int = 4) -> int:
        """Bytes of routed expert weights on one device, all layers: they are spread over `expert_parallel`."""
        return bytes_per_element * self.parameters_by_part["experts"] // self.expert_parallel

    def dispatch_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Bytes one token sends through one layer's exchange in one direction, before capacity padding."""
        return bytes_per_element * self.top_k * self.expert_input

    # Terms of the sums above ------------------------------------------------------------------------------------

    @property
    def _query_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def _expert_parameters(self) -> int:
        return 3 * self.expert_input * self.expert_width

    @property
    def _shared_parameters(self) -> int:
        return self.num_shared_experts * 3 * self.hidden * self.shared_width

    def _layer_flops(self, kv_heads: int, attended: int) -> int:
        d, latent = self.hidden, self.latent
        projections = 2 * d * (self._query_width + 2 * kv_heads * self.head_dim) + 2 * d * d
        attention = 4 * attended * self._query_width + 3 * attended * self.num_heads
        experts = 2 * self.top_k * self._expert_parameters + 2 * self._shared_parameters
        around = 2 * d * self.num_experts + (4 * d * latent if latent is not None else 0)
        return projections + attention + experts + around


_COUNTS = (
    "vocab_size", "hidden", "num_layers", "num_heads", "head_dim", "num_kv_heads", "num_global_kv_heads", "window",
    "sequence_length", "global_every", "num_experts", "top_k", "expert_width", "shared_width", "gated_norm_rank",
    "expert_parallel",
)  # fmt: skip


def _kv_heads(num_heads: int, query_heads_each: int) -> int:
    """About one head per `query_heads_each` query heads, rounded down to a divisor so that groups stay even."""
    wanted = max(1, num_heads // query_heads_each)
    return max(count for count in range(1, wanted + 1) if num_heads % count == 0)
