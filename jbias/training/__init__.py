"""Modules that build a training run from its config, train, evaluate, save and resume it."""
