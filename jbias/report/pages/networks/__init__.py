"""The page of `jbias report measured`: measured networks."""
