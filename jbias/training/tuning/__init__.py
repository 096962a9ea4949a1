"""Tools that tune compiled training steps.

They choose config.run.strategy, fit seeds into device memory, estimate times on GPUs, summarise
profiles, and parse the devices to compile for.
"""
