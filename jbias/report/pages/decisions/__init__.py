"""The page of `jbias report decisions`: observers whose decisions about images are known."""
