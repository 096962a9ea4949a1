"""The process and its machine: command line, console, files, devices."""
