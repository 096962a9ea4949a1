"""Experiments under the protocol of the BiasBed study."""
