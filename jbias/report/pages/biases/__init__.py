"""The page of `jbias report biases`: biases and generalisation of many models."""
