"""The page of `jbias report distortion`: effects of distorted images on networks."""
