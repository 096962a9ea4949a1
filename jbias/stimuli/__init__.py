"""Stimuli: images shown under several conditions, made on the device; one file a family."""
