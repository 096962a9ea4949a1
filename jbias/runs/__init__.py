"""Readers and writers of the files in a run's folder."""
