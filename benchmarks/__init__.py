"""What is measured against what; each file is a command, each result says where."""
