"""Inputs made to harm who reads them, and what comes of each."""
