"""A page on which a person decides about stimuli as a network does: `jbias observe`.

cli.py         the command line
stimuli.py     the embedded stimuli, or those of a folder, in balanced blocks
comparison.py  networks and people whose decisions on the same images are known
masks.py       the noise that follows each image
page.py        one HTML file with all of these; page.js shows the images and computes the results

Nothing here imports JAX.
"""
