"""The hash of any config value, the steps it holds among it."""

from typing import Any

from executor.keys.graph import Graph
from executor.keys.identity import Encoder, hash_json, without_names


def fingerprint(value: Any) -> str:
    """sha256, in hex, of a value's canonical form: equal values have equal fingerprints, in any process.

    Raises:
        IdentityError: something in it has no stable form; the text names the field and what to write instead.
    """
    encoder = Encoder()
    encoded = encoder.encode(value)
    if encoder.inputs:
        graph = Graph.of([found.step for found in encoder.inputs])
        for found in encoder.inputs:
            found.slot["key"] = graph.key_of(found.step)
        encoded = without_names(encoded)
    return hash_json(encoded)
