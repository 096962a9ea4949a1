"""Reads what others wrote: files, images, arrays and pickles, which may attack who reads."""
