"""Modules for the command line, the console, files, locks, devices and processes."""
