"""Measures of activations inside a network, which make no decisions."""
