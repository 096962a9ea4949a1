"""Weights that a step moves before it takes a gradient: SAM and ASAM."""
