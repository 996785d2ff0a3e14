"""The model: its shape as arithmetic (`config`), and the pure JAX functions that shape describes."""
