"""The page of `jbias report`: algorithms compared on data sets."""
