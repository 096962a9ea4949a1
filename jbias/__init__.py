"""A testbed for texture and shape bias in JAX."""

__version__ = "0.1.0"
