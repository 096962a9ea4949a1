"""The page of `jbias report shifts`: drops of accuracy of networks trained under shifts."""
