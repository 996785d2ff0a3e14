"""The weights of one mixture-of-experts layer.

Letters: D hidden, E experts, l width that experts work at (the latent, or D without one), I expert width, SI width of
all shared experts together. Arrays of all layers of a model carry a leading axis L and are scanned over.
"""

import equinox as eqx
from jaxtyping import Array, Float


class MoEWeights(eqx.Module):
    """Everything in the layer that is trained. The router's bias is state and is not here.

    The gated halves stand side by side: `w_gate_up[..., :I]` goes through SiLU, `[..., I:]` is multiplied with it.
    """

    router: Float[Array, "*L D E"]
    latent_down: Float[Array, "*L D l"] | None
    latent_norm: Float[Array, "*L l"] | None
    latent_up: Float[Array, "*L l D"] | None
    w_gate_up: Float[Array, "*L E l 2I"]
    w_down: Float[Array, "*L E I l"]
    shared_gate_up: Float[Array, "*L D 2SI"]
    shared_down: Float[Array, "*L SI D"]
