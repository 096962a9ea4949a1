"""Averages of weights over training steps and over seeds."""
