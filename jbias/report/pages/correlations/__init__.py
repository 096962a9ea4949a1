"""The page of `jbias report correlate`: rank correlations between measures of models."""
