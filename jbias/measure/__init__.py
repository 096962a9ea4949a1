"""Measures networks by suites, audits and studies; what the commands for it do."""
