"""A testbed for texture and shape bias in JAX."""

import os

__version__ = "0.1.0"

# In a checkout `configs` and `launch` lie beside this folder, in a wheel inside it.
if not os.path.exists(os.path.join(__path__[0], "configs", "__init__.py")):
    __path__.append(os.path.dirname(__path__[0]))
