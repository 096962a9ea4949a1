"""The parts of a training run, put together from its config."""
